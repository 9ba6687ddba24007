"""Tables of shell commands that only read, and of commands that destroy, with how far the damage reaches.

Data only; :mod:`actors.tools.safety` applies it.
"""

from __future__ import annotations

import re
from typing import Literal

Radius = Literal["low", "medium", "high"]

_SAFE: dict[str, str] = {
    "files": (
        "ls|pwd|cat|head|tail|wc|file|stat|du|df|tree|basename|dirname|realpath|readlink|cmp|diff|md5sum|sha1sum|"
        "sha256sum|cksum|find|locate|nl|od|strings|comm"
    ),
    "search": "grep|egrep|fgrep|rg|ag|which|whereis|type",
    "text": "echo|cut|uniq|jq|column|fold|rev|seq|true|false|test",
    "system": (
        "whoami|id|groups|uname|uptime|date|hostname|ps|free|lscpu|lsblk|nproc|arch|printenv|locale|who|w|tty"
    ),
    "git": (
        "git status|git log|git diff|git show|git blame|git rev-parse|git ls-files|git ls-tree|git describe|"
        "git shortlog|git remote -v|git stash list|git cat-file|git grep|git branch --list|git tag --list|"
        "git config --list|git config --get"
    ),
    "containers": (
        "docker ps|docker images|docker logs|docker inspect|docker version|docker info|docker stats|docker top|"
        "docker compose ps|kubectl get|kubectl describe|kubectl logs|kubectl version|kubectl top"
    ),
    "packages": (
        "pip list|pip show|pip freeze|npm ls|npm list|npm view|go version|go list|cargo tree|cargo metadata"
    ),
    "versions": "python --version|python3 --version|node --version|npm --version|ruby --version|java -version",
}

SAFE: dict[str, str] = {name: category for category, names in _SAFE.items() for name in names.split("|")}
"""Command words → category."""

_GIT_OUTPUT = re.compile(
    r"--output|-o|--ext-diff|--textconv|--open-files-in-pager|-O|--exec|--contents|--upload-pack"
)

UNSAFE_OPTIONS: dict[str, re.Pattern[str]] = {
    "date": re.compile(r"-s|--set|\d+$"),
    "diff": re.compile(r"--output"),
    "docker compose ps": re.compile(r"--file|-f"),
    "file": re.compile(r"-C|--compile"),
    "find": re.compile(r"-(delete|exec|execdir|ok|okdir|fprint|fls)"),
    "git config --get": re.compile(r"--(add|unset|replace|edit)"),
    "git config --list": re.compile(r"--(add|unset|replace|edit)"),
    "git remote -v": re.compile(r"[^-]"),
    "hostname": re.compile(r"[^-]|-F|--file|-b"),
    "rg": re.compile(r"--pre|--hostname-bin|--search-zip|-z"),
    "tree": re.compile(r"-o|--output|-R"),
    "uniq": re.compile(r"[^-]"),
    "go list": re.compile(r"-(toolexec|exec|modfile|mod)|--(toolexec|exec|modfile|mod)"),
    "locate": re.compile(r"-S"),
    "tail": re.compile(r"-[a-zA-Z]*[fF]|--follow|--retry"),
    "docker logs": re.compile(r"-f|--follow"),
    "kubectl logs": re.compile(r"-f|--follow"),
    **{
        name: _GIT_OUTPUT
        for name in SAFE
        if name.startswith("git ") and name not in {"git config --get", "git config --list", "git remote -v"}
    },
}
"""Command words → options with which the command is no longer safe."""

_DESTRUCTIVE: tuple[tuple[Radius, str, str, tuple[str, ...]], ...] = (
    (
        "high",
        "files",
        "deletes files without a way back",
        (
            r"^rm\b.*\s(-[a-z]*[rf]|--recursive|--force)",
            r"^shred\b",
            r"^wipe\b",
            r"^srm\b",
            r"^find\b.*\s-(delete|exec\s+(/\S*/)?(rm|shred))\b",
            r"^rsync\b.*\s--delete",
            r"^git clean\b.*\s-[a-z]*f",
        ),
    ),
    (
        "medium",
        "files",
        "deletes, moves or overwrites files",
        (
            r"^rm\b",
            r"^rmdir\b",
            r"^unlink\b",
            r"^truncate\b",
            r"^mv\b",
            r"^dd\b",
            r"^trash\b",
            r"^(sed|perl|ruby)\b.*\s-[a-z]*i",
            r"^cp\b.*\s(-[a-z]*f|--force)",
            r"^ln\b.*\s-[a-z]*f",
            r"^install\b",
            r"^tee\b(?!.*\s(-a|--append))",
            r"^unzip\b.*\s-o",
            r"^tar\b.*\s(--overwrite|--remove-files)",
        ),
    ),
    (
        "high",
        "disks",
        "changes a disk or its file systems",
        (
            r"^mkfs",
            r"^fdisk\b",
            r"^sfdisk\b",
            r"^parted\b",
            r"^wipefs\b",
            r"^mkswap\b",
            r"^umount\b",
            r"^mount\b",
            r"^lv(remove|reduce)\b",
            r"^vgremove\b",
            r"^pvremove\b",
            r"^cryptsetup\b",
            r"^zpool destroy\b",
            r"^zfs destroy\b",
            r"^mdadm\b",
            r"^dd\b.*\bof=/dev/",
            r">\s*/dev/(sd|nvme|vd|xvd|disk|mmcblk)",
            r"^diskutil\b",
            r"^swapoff\b",
        ),
    ),
    (
        "medium",
        "permissions",
        "changes who may use files",
        (
            r"^chmod\b",
            r"^chown\b",
            r"^chgrp\b",
            r"^setfacl\b",
            r"^chattr\b",
        ),
    ),
    (
        "high",
        "permissions",
        "changes who may use a whole tree",
        (
            r"^(chmod|chown|chgrp)\b.*\s(-[a-z]*r|--recursive)",
            r"^visudo\b",
            r"^passwd\b",
            r"^(useradd|userdel|usermod|adduser|deluser|groupadd|groupdel)\b",
        ),
    ),
    (
        "medium",
        "processes",
        "ends processes",
        (
            r"^kill\b",
            r"^pkill\b",
            r"^killall\b",
            r"^xkill\b",
        ),
    ),
    (
        "high",
        "system",
        "changes or stops the machine",
        (
            r"^shutdown\b",
            r"^reboot\b",
            r"^halt\b",
            r"^poweroff\b",
            r"^init\s+[06]\b",
            r"^telinit\b",
            r"^systemctl\b.*\s(stop|disable|mask|kill|poweroff|reboot|isolate|restart)\b",
            r"^service\b.*\s(stop|restart)\b",
            r"^launchctl\b",
            r"^sysctl\b.*\s-w",
            r"^iptables\b",
            r"^nft\b",
            r"^ufw\b",
            r"^crontab\b",
            r"^modprobe\b",
            r"^rmmod\b",
            r"^insmod\b",
            r":\(\)\s*\{.*\|.*&\s*\}",
        ),
    ),
    ("high", "system", "runs as another user", (r"^\s*(sudo|doas|su)\b",)),
    (
        "high",
        "git",
        "rewrites or discards shared history",
        (
            r"^git push\b.*\s(-[a-z]*f|--force|--mirror|--delete|-d\b|\+\S)",
            r"^git filter-(branch|repo)\b",
            r"^git update-ref\b.*\s-d",
            r"^git reflog (expire|delete)\b",
            r"^git gc\b.*--prune",
        ),
    ),
    (
        "medium",
        "git",
        "discards or publishes work",
        (
            r"^git reset\b.*--hard",
            r"^git checkout\b.*\s(--|\.|-f|--force)",
            r"^git restore\b",
            r"^git clean\b",
            r"^git stash (drop|clear|pop)\b",
            r"^git branch\b.*\s(-[a-z]*d|--delete)",
            r"^git tag\b.*\s(-d|--delete)",
            r"^git push\b",
            r"^git rebase\b",
            r"^git commit\b.*--amend",
            r"^git rm\b",
            r"^git worktree remove\b",
            r"^git submodule deinit\b",
            r"^git remote (remove|rm|set-url)\b",
        ),
    ),
    (
        "high",
        "containers",
        "deletes containers, volumes or cluster objects",
        (
            r"^docker (system|volume|image|container|network|builder) prune\b",
            r"^docker volume rm\b",
            r"^docker compose\b.*\sdown\b.*\s(-v|--volumes)",
            r"^kubectl delete\b",
            r"^kubectl (drain|cordon|replace)\b",
            r"^helm (uninstall|delete|rollback)\b",
            r"^docker run\b.*\s--privileged",
        ),
    ),
    (
        "medium",
        "containers",
        "stops or removes containers",
        (
            r"^docker (rm|rmi|kill|stop|restart)\b",
            r"^docker (container|image|network) rm\b",
            r"^docker compose\b.*\s(down|rm|kill|stop)\b",
            r"^podman (rm|rmi|kill|stop)\b",
            r"^kubectl (apply|scale|patch|edit)\b",
        ),
    ),
    (
        "high",
        "cloud",
        "deletes resources elsewhere",
        (
            r"^terraform (destroy|apply)\b",
            r"^pulumi (destroy|up)\b",
            r"^aws\b.*\s(delete|terminate|remove|rb|rm)\b",
            r"^aws\b.*\s(delete|terminate)-",
            r"^gcloud\b.*\sdelete\b",
            r"^az\b.*\sdelete\b",
            r"^gsutil\b.*\s(rm|rb)\b",
            r"^gh (repo|release) delete\b",
            r"^heroku\b.*destroy\b",
        ),
    ),
    (
        "high",
        "databases",
        "deletes data of a database",
        (
            r"\bdrop\s+(database|table|schema|index|view|user)\b",
            r"\btruncate\s+table\b",
            r"\bdelete\s+from\b",
            r"^dropdb\b",
            r"^redis-cli\b.*\b(flushall|flushdb|del)\b",
            r"^mongo(sh)?\b.*\bdrop(database)?\b",
        ),
    ),
    (
        "medium",
        "packages",
        "changes installed software",
        (
            r"^(apt|apt-get|aptitude|dnf|yum|zypper|brew|port|snap)\b.*\s(remove|purge|autoremove|uninstall|erase)\b",
            r"^pacman\b.*\s-r",
            r"^(pip|pip3|uv pip)\b.*\suninstall\b",
            r"^(npm|pnpm|yarn)\b.*\s(uninstall|remove|unpublish)\b",
            r"^cargo (uninstall|clean|yank)\b",
            r"^gem uninstall\b",
            r"^dpkg\b.*\s(-r|-p|--remove|--purge)",
        ),
    ),
    (
        "high",
        "packages",
        "publishes a package for everyone",
        (
            r"^(npm|pnpm|yarn|cargo) publish\b",
            r"^twine upload\b",
            r"^docker push\b",
            r"^gem push\b",
        ),
    ),
    (
        "high",
        "remote code",
        "runs what it downloads",
        (
            r"\b(curl|wget)\b[^\n]*\|\s*(sudo\s+)?(ba|z|da|k)?sh\b",
            r"\b(curl|wget)\b[^\n]*\|\s*(sudo\s+)?(python|perl|ruby|node)",
            r"\b(ba|z|da)?sh\s+<\(\s*(curl|wget)\b",
        ),
    ),
    (
        "low",
        "files",
        "overwrites a file",
        (
            r"(?<![0-9&<>=-])>(?![>&(=])\s*(?!/dev/null\b)[\w./~$\"'-]",
            r"\s>\|\s*\S",
        ),
    ),
    (
        "low",
        "history",
        "removes traces",
        (
            r"^history\b.*\s-c",
            r"^git config\b.*--unset",
        ),
    ),
)

DESTRUCTIVE: tuple[tuple[re.Pattern[str], Radius, str, str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), radius, category, reason)
    for radius, category, reason, sources in _DESTRUCTIVE
    for pattern in sources
)
"""Pattern of a command in plain words, or of a whole line; reach; category; what it does."""
