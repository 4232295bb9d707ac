"""The description of a container, without an engine."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from taskweaver_ext.ces.kernels.container.description import (
    ContainerSettings,
    Placement,
    cwd_inside,
    describe,
    is_read_at_start,
)
from taskweaver_ext.ces.kernels.container.limits import ContainerLimits


def described(settings: ContainerSettings | None = None, **changes: object) -> dict[str, Any]:
    placement: dict[str, Any] = {
        "folder": Path("/tmp/taskweaver-x"),
        "cwd": Path("/home/me/work"),
        "transport": "ipc",
        "user": "1000:100",
        "processors": 8,
        **changes,
    }
    return describe(settings or ContainerSettings(), Placement(**placement))


@pytest.mark.parametrize(
    ("outside", "inside"),
    [
        ("/home/me/work", "/home/me/work"),
        ("/work", "/work"),
        ("/tmp/x", "/tmp/x"),
        ("/root/x", "/root/x"),
        ("/var/lib/x", "/var/lib/x"),
        ("/", "/work"),
        ("/tmp", "/work"),
        ("/home", "/work"),
        ("/usr/share/x", "/work"),
        ("/etc/x", "/work"),
        ("/proc/x", "/work"),
        ("/run", "/work"),
        ("/run/taskweaver/x", "/work"),
    ],
)
def test_a_folder_keeps_its_path_unless_the_image_needs_it(outside: str, inside: str) -> None:
    assert cwd_inside(Path(outside)) == PurePosixPath(inside)


def test_only_the_working_directory_can_be_written_to() -> None:
    settings = ContainerSettings(read_only_mounts={"/data": "/given"})

    mounts = described(settings)["HostConfig"]["Mounts"]

    assert {mount["Target"]: mount["ReadOnly"] for mount in mounts} == {
        "/home/me/work": False,
        "/run/taskweaver": True,
        "/given": True,
    }


def test_volumes_of_the_image_are_memory() -> None:
    volumes = ["/data", "/tmp", "/home/me/work/"]
    settings = ContainerSettings(limits=ContainerLimits(tmp_bytes=1 << 20))

    mounts = described(settings, volumes=volumes)["HostConfig"]["Mounts"]
    given_up = described(ContainerSettings(has_writable_root=True), volumes=volumes)

    assert [mount for mount in mounts if mount["Type"] != "bind"] == [
        {
            "Type": "tmpfs",
            "Target": "/data",
            "TmpfsOptions": {"Mode": 0o1777, "SizeBytes": 1 << 20},
        }
    ]
    assert {mount["Type"] for mount in given_up["HostConfig"]["Mounts"]} == {"bind"}


def test_everything_is_closed_by_default() -> None:
    host = described()["HostConfig"]

    assert host["NetworkMode"] == "none"
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["ReadonlyRootfs"] is True
    assert host["Init"] is True
    assert host["Memory"] == host["MemorySwap"] == 2 << 30
    assert host["PidsLimit"] == 256
    assert host["NanoCpus"] == 2_000_000_000
    assert {"Name": "fsize", "Soft": 1 << 30, "Hard": 1 << 30} in host["Ulimits"]
    assert all(entry.endswith(":127.0.0.1") for entry in host["ExtraHosts"])
    assert "PortBindings" not in host


@pytest.mark.parametrize(
    ("settings", "key", "value"),
    [
        (ContainerSettings(has_network=True), "NetworkMode", "bridge"),
        (ContainerSettings(keeps_capabilities=True), "CapDrop", []),
        (ContainerSettings(may_gain_privileges=True), "SecurityOpt", []),
        (ContainerSettings(has_writable_root=True), "ReadonlyRootfs", False),
        (ContainerSettings(has_init=False), "Init", False),
        (ContainerSettings(sees_host_names=True), "ExtraHosts", None),
        (ContainerSettings(limits=ContainerLimits(memory_bytes=None)), "Memory", None),
        (ContainerSettings(limits=ContainerLimits(processes=None)), "PidsLimit", None),
        (ContainerSettings(limits=ContainerLimits(cpus=0.5)), "NanoCpus", 500_000_000),
    ],
)
def test_each_protection_has_a_setting(
    settings: ContainerSettings, key: str, value: object
) -> None:
    assert described(settings)["HostConfig"].get(key) == value


def test_no_more_processors_are_asked_for_than_there_are() -> None:
    settings = ContainerSettings(limits=ContainerLimits(cpus=16))

    assert described(settings, processors=2)["HostConfig"]["NanoCpus"] == 2_000_000_000


def test_ports_are_published_on_loopback_only_and_lead_to_a_closed_network() -> None:
    host = described(transport="tcp", network="closed")["HostConfig"]

    assert host["NetworkMode"] == "closed"
    assert {binding["HostIp"] for [binding] in host["PortBindings"].values()} == {"127.0.0.1"}
    assert host["Dns"] == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("name", "is_public"),
    [
        ("PYTHONHASHSEED", True),
        ("LANG", True),
        ("LC_ALL", True),
        ("TZ", True),
        ("PLUGIN_map_KEY", False),
        ("PYTHON_PACKAGE_TOKEN", False),
        ("LANGSMITH_API_KEY", False),
    ],
)
def test_only_what_must_be_there_at_the_start_shows_in_inspect(name: str, is_public: bool) -> None:
    variables = described(environment={name: "value"})["Env"]

    assert is_read_at_start(name) is is_public
    assert (f"{name}=value" in variables) is is_public
