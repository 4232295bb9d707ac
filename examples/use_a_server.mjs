/**
 * Use a session of `taskweaver-ext serve` from JavaScript, without packages: Node 20, Deno, Bun.
 *
 *     node examples/use_a_server.mjs 'http://127.0.0.1:8765/?token=...'
 *
 * Prints:
 *     counting 0
 *     counting 1
 *     counting 2
 *     finished
 */

const address = new URL(process.argv[2]);
const headers = { authorization: `Bearer ${address.searchParams.get("token")}` };

async function ask(path, method = "GET", body = undefined) {
  const answer = await fetch(new URL(`/api/v1/${path}`, address), {
    method,
    headers,
    body: body && JSON.stringify(body),
  });
  const values = await answer.json();
  if (!answer.ok) throw new Error(values.error.message);
  return values;
}

/** Every event after one, exactly once: a connection that is cut is opened again. */
async function* events(session, cursor) {
  for (;;) {
    try {
      const path = `/api/v1/sessions/${session}/events?after=${cursor}`;
      const answer = await fetch(new URL(path, address), { headers });
      let text = "";
      for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) {
        const told = (text + piece).split("\n\n");
        text = told.pop();
        for (const one of told) {
          const found = one.match(/^id: (.*)\ndata: (.*)$/m);
          if (found === null) continue;
          cursor = found[1];
          yield JSON.parse(found[2]);
        }
      }
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
  }
}

const session = await ask("sessions", "POST", {});
const code = 'for number in range(3): print("counting", number)';
const { round_id } = await ask(`sessions/${session.session_id}/runs`, "POST", { code });

for await (const event of events(session.session_id, session.cursor)) {
  if (event.event === "post_execution_output") process.stdout.write(event.msg);
  if (event.event === "round_end" && event.round_id === round_id) {
    console.log(event.extra.state);
    break;
  }
}
await ask(`sessions/${session.session_id}/end`, "POST");
