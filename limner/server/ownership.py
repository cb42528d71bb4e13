"""The owner and the rights of a file that is written anew under the same name.

An operator often works as root, and the server as a user of its own: a file of root in the place of the server's would
shut the server out, so that no token is taken or no line of the audit log can be written.
"""

import os
import stat


def keep_owner(handle: int, before: os.stat_result | None) -> None:
    """Give an open new file the owner, the group and the rights of the one whose place it takes; None = there is none.

    Where this user may not, it stays a file of this user alone.
    """
    if before is None:
        return
    try:
        os.fchown(handle, before.st_uid, before.st_gid)
    except PermissionError:
        # the rights of the old group would go to another one
        return
    # behind the owner, whose change takes rights away
    os.fchmod(handle, stat.S_IMODE(before.st_mode))
