#!/usr/bin/env bash
# Use a session of `taskweaver-ext serve` with curl and jq alone.
#
#     examples/use_a_server.sh 'http://127.0.0.1:8765/?token=...'
#
# Prints:
#     hello from the kernel
#     finished
#     hello.txt
set -euo pipefail

url=${1%%\?token=*}api/v1
ask() { curl --silent --show-error --fail-with-body -H "Authorization: Bearer ${1##*token=}" "${@:2}"; }

session=$(ask "$1" -X POST "$url/sessions" | jq -r .session_id)
cursor=$(ask "$1" "$url/sessions/$session" | jq -r .cursor)
code='print("hello from the kernel"); open("hello.txt", "w").close()'
round=$(ask "$1" "$url/sessions/$session/runs" --data "$(jq -n --arg code "$code" '{$code}')" |
    jq -r .round_id)

# Events are lines `data: {...}`; `id:` is what to go on after should the connection be cut.
while read -r event; do
    case $(jq -r .event <<<"$event") in
    post_execution_output) jq -j .msg <<<"$event" ;;
    round_end) [ "$(jq -r .round_id <<<"$event")" = "$round" ] && jq -r .extra.state <<<"$event" && break ;;
    esac
done < <(ask "$1" --no-buffer "$url/sessions/$session/events?after=$cursor" |
    sed --unbuffered -n 's/^data: //p')

ask "$1" "$url/sessions/$session/files" | jq -r '.files[].path'
ask "$1" -X POST "$url/sessions/$session/end" >/dev/null
