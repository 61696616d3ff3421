"""The code directory: what of it is sent to workers, and the package that is sent.

`list_files` walks the directory once and makes *the* list: it is what the cap is checked against, what is hashed and
what is packed. `pack` turns the list into `<hash>.tar.gz`; the hash covers names, modes and bytes, so equal code has an
equal name on every machine. An index of file times next to the archives makes a second `pack` of unchanged code a mere
walk.

What is left out
    What `.nniignore` files say, in any folder, by git's rules: patterns are relative to the folder of their
    file, a deeper file and a later line win, `!` takes back, and nothing comes back from a folder that is
    itself left out. `DEFAULT_IGNORES` count as lines before all others. Folders of experiments (they grow
    while they are packed).

Symbolic links
    To something that is sent: stays a link, made relative. To a file outside the tree: sent as that file. To
    a folder outside, to something left out, or to nothing: left out. `notes` mentions all but the first.

Empty folders are sent, since programs expect to write there, and count as a file. Sockets, pipes and devices
are not.

code_package  the list of files, and the package that is made of it
_git_pattern  one pattern of `.nniignore`, matched as git does
_nniignore    which files `.nniignore` leaves out
_oversize     what to say of a code directory that is too large
"""

from __future__ import annotations

from nnilite._keeper.plain_file import open_code_file
from nnilite.codedir.code_package import (
    DEFAULT_IGNORES,
    CodeFile,
    CodePackage,
    FileList,
    PackageLimits,
    Progress,
    list_files,
    pack,
)

__all__ = [
    "DEFAULT_IGNORES",
    "CodeFile",
    "CodePackage",
    "FileList",
    "PackageLimits",
    "Progress",
    "list_files",
    "open_code_file",
    "pack",
]
