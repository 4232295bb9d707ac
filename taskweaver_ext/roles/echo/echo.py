"""The smallest role: it repeats what it is told, and shows how a role is made."""

from __future__ import annotations

from taskweaver_ext.conversation import Post
from taskweaver_ext.roles.base.role import Memory, Role


class Echo(Role):
    """Send every message back to where it came from."""

    def reply(self, memory: Memory) -> Post:
        """Repeat the message of the last post."""
        post = self.context.emitter.create_post_proxy(self.alias)
        post.update_message(memory.last_post.message)
        post.update_send_to(memory.asker_of(self.alias))
        return post.end()
