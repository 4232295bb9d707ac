"""Output is masked on its way to the record, whatever the pieces and whenever it is released."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from taskweaver_ext.ces.execution.masking import OutputMask, mask_message
from taskweaver_ext.ces.execution.results import StreamName
from taskweaver_ext.text.redaction import MASK, Redactor

SECRET = "abcabd-secret"
REDACTOR = Redactor([SECRET])

STREAM_NAMES: tuple[StreamName, ...] = ("stdout", "stderr")
PIECES = st.lists(
    st.tuples(
        st.sampled_from(STREAM_NAMES),
        st.sampled_from(["abc", "abcabd", "-", "secret", "\n", "é", "ab", SECRET, "other"]),
        st.booleans(),
    )
)


@given(PIECES)
def test_no_record_has_a_secret_and_nothing_else_is_lost(
    pieces: list[tuple[StreamName, str, bool]],
) -> None:
    recorded: dict[StreamName, str] = {"stdout": "", "stderr": ""}
    written: dict[StreamName, str] = {"stdout": "", "stderr": ""}

    def record(stream: StreamName, data: bytes) -> None:
        recorded[stream] += data.decode()

    mask = OutputMask(REDACTOR, record)
    for stream, text, is_released in pieces:
        written[stream] += text
        mask.receive(stream, text.encode())
        if is_released:
            mask.release()
    mask.close()

    for stream in STREAM_NAMES:
        assert SECRET not in recorded[stream]
        if SECRET not in written[stream]:
            assert recorded[stream] == written[stream]


@given(st.lists(st.sampled_from(["abc", "abd-", "secret", SECRET, " "])))
def test_without_pauses_pieces_make_no_difference(texts: list[str]) -> None:
    recorded: list[bytes] = []
    mask = OutputMask(REDACTOR, lambda _stream, data: recorded.append(data))

    for text in texts:
        mask.receive("stdout", text.encode())
    mask.close()

    assert b"".join(recorded).decode() == REDACTOR.redact("".join(texts))


def test_bytes_that_are_no_text_come_through_as_they_are() -> None:
    recorded: list[bytes] = []
    mask = OutputMask(REDACTOR, lambda _stream, data: recorded.append(data))

    mask.receive("stdout", b"\xff\xed\xa0\x80 abcabd-secret \xc3")
    mask.close()

    assert b"".join(recorded) == b"\xff\xed\xa0\x80 " + MASK.encode() + b" \xc3"


def test_what_stood_before_on_the_other_stream_is_recorded_before() -> None:
    recorded: list[tuple[str, bytes]] = []
    mask = OutputMask(REDACTOR, lambda stream, data: recorded.append((stream, data)))

    assert mask.receive("stdout", b"ab")
    assert not mask.receive("stderr", b"error\n")

    assert recorded[-2:] == [("stdout", b"ab"), ("stderr", b"error\n")]


def test_a_bundle_keeps_its_order_and_its_pictures() -> None:
    content = {
        "data": {
            "image/png": SECRET,
            "text/plain": SECRET,
            "image/svg+xml": SECRET,
            "kept": SECRET,
        },
        "metadata": {SECRET: [SECRET]},
    }

    masked = mask_message(REDACTOR, content, kept="kept")

    assert list(masked["data"].items()) == [
        ("image/png", SECRET),
        ("text/plain", MASK),
        ("image/svg+xml", MASK),
        ("kept", SECRET),
    ]
    assert masked["metadata"] == {MASK: [MASK]}
