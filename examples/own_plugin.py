"""Write a plugin: a function that the code in a kernel can call, and that says what it does.

In a project, the class is `plugins/word_count.py`, and `plugins/word_count.yaml` beside it tells
the model how to call it (project/plugins has two to copy from). Here it is loaded by hand.

Prints:
    [info] Plugin-word_count: reading 9 words
    A table was saved: words.txt
    {'the': 3, 'sea': 2}
"""

from taskweaver_ext import (
    ArtifactProduced,
    Environment,
    ExecutionEvent,
    LogRecorded,
    OutputProduced,
)

PLUGIN = """
from collections import Counter

from taskweaver.plugin import Plugin, register_plugin, test_plugin


@register_plugin
class WordCount(Plugin):
    def __call__(self, text):
        words = text.lower().split()
        self.log("info", f"reading {len(words)} words")
        counts = dict(Counter(words).most_common(self.config["most"]))
        self.ctx.add_artifact("table", "words.txt", "txt", str(counts))
        return counts


@test_plugin(name="counts", description="a word that comes twice counts twice")
def counts_words(word_count):
    assert word_count("to be or not to be")["to"] == 2
"""


def show(event: ExecutionEvent) -> None:
    """What a plugin logs and makes comes at once, between what the code prints."""
    match event:
        case LogRecorded():
            print(f"[{event.level}] {event.tag}: {event.message}")
        case ArtifactProduced():
            print("A table was saved:", event.artifact.original_name)
        case OutputProduced():
            print(event.text, end="")
        case _:
            pass


with Environment(env_dir="work") as environment:
    environment.start_session("s1")
    environment.load_plugin("s1", "word_count", PLUGIN, {"most": 2})
    environment.test_plugin("s1", "word_count")
    environment.execute_code(
        "s1", "print(word_count('the sea and the sky and the sea shore'))", on_event=show
    )
