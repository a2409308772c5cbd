"""Which file system a path is on, because SQLite's locks and shared memory cannot be trusted across a network.

It only looks. It never guesses in favour of a network: a file system that is not known to be remote is taken as local.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

MOUNTS: Final = Path("/proc/self/mountinfo")

NETWORK: Final = frozenset(
    {
        "9p",
        "afs",
        "afpfs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "pvfs2",
        "smb2",
        "smb3",
        "smbfs",
        "virtiofs",
        "webdav",
    }
)
FUSE_LOCAL: Final = frozenset({"fuse.ext2", "fuse.lklfuse", "fuse.ntfs", "fuse.ntfs-3g", "fuse.fuse-overlayfs"})
"""File systems in user space that stand on a local disk. Every other `fuse.*` is taken as remote."""
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    point: str
    kind: str
    source: str


def mounts(text: str) -> list[Mount]:
    """The mounts of a `mountinfo` text, in its order: of two at one place the later covers the earlier."""
    found: list[Mount] = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        before, after = left.split(), right.split()
        if len(before) >= 5 and len(after) >= 2:
            found.append(Mount(_plain(before[4]), after[0], _plain(after[1])))
    return found


def mount_of(path: Path, known: list[Mount]) -> Mount | None:
    """The mount that holds `path`: the longest mount point that is a prefix of it."""
    best: Mount | None = None
    for mount in known:
        if path.is_relative_to(mount.point) and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def remote(kind: str) -> bool:
    return kind in NETWORK or (kind.startswith("fuse.") and kind not in FUSE_LOCAL)


def network_mount(path: Path) -> Mount | None:
    """The network file system that `path` (an absolute one, with links followed) is on; None where it is local."""
    if sys.platform == "darwin":
        mount = _darwin(path)
    else:
        try:
            text = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return None
        mount = mount_of(path, mounts(text))
    return mount if mount is not None and remote(mount.kind) else None


def _plain(text: str) -> str:
    """`mountinfo` writes blanks and backslashes as octal."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def _darwin(path: Path) -> Mount | None:
    """macOS has no mountinfo: what `mount` prints, `source on /point (kind, options)`."""
    try:
        listed = subprocess.run(["/sbin/mount"], capture_output=True, text=True, timeout=5, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found: list[Mount] = []
    for line in listed.splitlines():
        match = re.fullmatch(r"(.*) on (/.*) \(([^,)]*).*\)", line)
        if match:
            found.append(Mount(match[2], match[3], match[1]))
    return mount_of(path, found)


def sync_folder(folder: Path) -> None:
    """Make a new name in `folder` survive a power cut."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
