"""Each missing piece, in a sentence that a person can act on."""

from __future__ import annotations

from errno import EACCES, EINVAL, ENODEV, ENOSPC, ENOSYS, EPERM

import pytest

from agent.jail.explain import HostState, explain, explain_platform, kernel_version

WORKING = HostState(max_user_namespaces=60_000)
UBUNTU = HostState(apparmor_restrict_unprivileged_userns=1)


@pytest.mark.parametrize(
    ("step", "code", "host", "said"),
    [
        ("unshare", EPERM, HostState(kernel=(4, 19)), "Linux 5.12 or later is needed, this is 4.19"),
        ("unshare", ENOSPC, HostState(max_user_namespaces=0), "sysctl user.max_user_namespaces=15000"),
        ("unshare", ENOSPC, WORKING, "sysctl user.max_user_namespaces=15000"),
        ("unshare", EPERM, HostState(unprivileged_userns_clone=0), "sysctl kernel.unprivileged_userns_clone=1"),
        ("uid_map", EPERM, UBUNTU, "extra-profiles/bwrap-userns-restrict"),
        ("unshare", EACCES, UBUNTU, "apparmor_restrict_unprivileged_userns=0"),
        ("unshare", EPERM, HostState(is_container=True), "--security-opt seccomp=unconfined"),
        ("proc", EPERM, HostState(is_container=True), "systempaths=unconfined"),
        ("overlay", ENODEV, WORKING, "modprobe overlay"),
        ("overlay", EINVAL, WORKING, "a file system that an overlay cannot use"),
        ("mount_setattr", ENOSYS, WORKING, "a filter of system calls"),
        ("landlock", EPERM, HostState(is_container=True), "(a container's) hides it"),
        ("user notification", EINVAL, WORKING, "(a container's) hides it"),
        ("something", 0, WORKING, "frog-lsp doctor"),
    ],
)  # fmt: skip
def test_each_missing_piece_is_explained(step: str, code: int, host: HostState, said: str) -> None:
    assert said in explain(step, code, host)


def test_what_does_not_concern_root_is_not_said_to_root() -> None:
    host = HostState(unprivileged_userns_clone=0, apparmor_restrict_unprivileged_userns=1, is_root=True)
    assert "sysctl" not in explain("unshare", EPERM, host)


def test_systems_without_a_jail_say_so() -> None:
    assert explain_platform("linux") == ""
    assert "WSL2" in explain_platform("win32")
    assert "Seatbelt" in explain_platform("darwin")
    assert "freebsd14" in explain_platform("freebsd14")


def test_kernel_versions() -> None:
    assert kernel_version("6.6.87.2-microsoft-standard-WSL2") == (6, 6)
    assert kernel_version("6.18.44-fc") == (6, 18)
    assert kernel_version("5.10+deb") == (5, 10)
    assert kernel_version("6.14-rc1") == (6, 14)
    assert kernel_version("7") == (7, 0)
    assert kernel_version("strange") == (0, 0)
