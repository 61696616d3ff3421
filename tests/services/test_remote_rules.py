"""The SSH service's rules, without any machine: host keys, routes, placement, the tunnel's gate, what is unpacked."""

from __future__ import annotations

import base64
import errno
import io
import tarfile

import pytest

paramiko = pytest.importorskip("paramiko")

from nnilite.config import from_dict  # noqa: E402
from nnilite.errors import ConfigError, NoCapacity, ServiceError  # noqa: E402
from nnilite.services.gpu import Gpu  # noqa: E402
from nnilite.ssh.connect import connect  # noqa: E402
from nnilite.ssh.download import unpack_stream  # noqa: E402
from nnilite.ssh.errors import MachineError  # noqa: E402
from nnilite.ssh.known_hosts import HostKey, KnownHosts, host_name  # noqa: E402
from nnilite.ssh.route import RouteMap  # noqa: E402
from nnilite_remote import HostKeyPolicy, MachineConfig, RemoteConfig  # noqa: E402
from nnilite_remote._agent_link import command, pythons  # noqa: E402
from nnilite_remote._bookings import Booking, Bookings  # noqa: E402
from nnilite_remote._machine_choice import Choice, HostCandidate, choose_machines  # noqa: E402
from nnilite_remote._pending_commands import CANCEL, REMOVE, PendingCommands  # noqa: E402

KEY = HostKey("ssh-ed25519", b"one")
OTHER = HostKey("ssh-ed25519", b"two")
LINE = f"ssh-ed25519 {base64.b64encode(KEY.data).decode()}\n"

# host keys


@pytest.mark.parametrize("names", ["box", "other,box", "b?x", "*,!other", "BOX", "[box]:22,box"])
def test_a_machine_with_its_known_key_is_trusted(tmp_path, names):
    place = tmp_path / "known"
    place.write_text(f"# a comment\n\n{names} {LINE}")
    KnownHosts([place], HostKeyPolicy.STRICT).check("box", KEY)


@pytest.mark.parametrize("names", ["box", "b*"])
@pytest.mark.parametrize("policy", [HostKeyPolicy.STRICT, HostKeyPolicy.ACCEPT_NEW])
def test_a_machine_with_another_key_is_refused(tmp_path, names, policy):
    place = tmp_path / "known"
    place.write_text(f"{names} {LINE}")
    with pytest.raises(MachineError, match="ssh-keygen -R"):
        KnownHosts([place], policy).check("box", OTHER)
    assert place.read_text() == f"{names} {LINE}"


def test_a_revoked_key_is_refused_even_if_it_is_known(tmp_path):
    place = tmp_path / "known"
    place.write_text(f"box {LINE}@revoked * {LINE}")
    with pytest.raises(MachineError, match="revoked"):
        KnownHosts([place], HostKeyPolicy.ACCEPT_NEW).check("box", KEY)


def test_a_new_machine_is_added_on_a_line_of_its_own(tmp_path):
    place = tmp_path / "new folder" / "known"
    known = KnownHosts([place], HostKeyPolicy.ACCEPT_NEW)
    known.check("box", KEY)
    place.write_text(place.read_text().rstrip("\n"))
    known.check("[b]:2222", OTHER)
    assert [line.split()[0] for line in place.read_text().splitlines()] == ["box", "[b]:2222"]
    assert place.stat().st_mode & 0o777 == 0o600


def test_under_ignore_any_key_will_do_and_nothing_is_written(tmp_path):
    KnownHosts([tmp_path / "known"], HostKeyPolicy.IGNORE).check("box", KEY)
    assert not (tmp_path / "known").exists()


def test_names_are_as_openssh_writes_them():
    assert [host_name("Box", 22), host_name("box", 2222)] == ["box", "[box]:2222"]


# routes


def hops(tmp_path, text: str, machine: MachineConfig):
    (tmp_path / "config").write_text(text)
    config = RemoteConfig([machine], ssh_config_file=tmp_path / "config", known_hosts_file=tmp_path / "known")
    return RouteMap(config).hops(machine)


def test_the_config_goes_before_the_ssh_config(tmp_path):
    text = "Host box\n  HostName real.box\n  User other\n  Port 2200\n"
    [hop] = hops(tmp_path, text, MachineConfig("box", user="me"))
    assert (hop.address, hop.user, hop.port, hop.known_as) == ("real.box", "me", 2200, "[real.box]:2200")


def test_hops_may_have_hops(tmp_path):
    text = "Host box\n ProxyJump inner\nHost inner\n ProxyJump me@gate:2200\nHost gate\n HostName g.lab\n"
    way = hops(tmp_path, text, MachineConfig("box"))
    assert [(hop.address, hop.port) for hop in way] == [("g.lab", 2200), ("inner", 22), ("box", 22)]


@pytest.mark.parametrize("text", ["Host a\n ProxyJump b\nHost b\n ProxyJump c\nHost c\n ProxyJump b\n"])
def test_hops_in_a_circle_are_found_out(tmp_path, text):
    with pytest.raises(MachineError, match="circles"):
        hops(tmp_path, text, MachineConfig("a"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("Host a\n Port many\n", "has no usable entry for a: .*many"),
        ("Host a\n Port 70000\n", "the port must be from 1 to 65535"),
        ('Host a\n "\n', "cannot be used"),
    ],
)
def test_an_ssh_config_that_cannot_be_used_is_said(tmp_path, text, complaint):
    with pytest.raises(MachineError, match=complaint) as caught:
        hops(tmp_path, text, MachineConfig("a"))
    assert caught.value.lasting


@pytest.mark.parametrize(
    "machine",
    [
        MachineConfig("a$(touch${IFS}ran)"),
        MachineConfig("a", proxy_jump="b`touch ran`"),
        MachineConfig("a", proxy_jump="me@b|touch ran|"),
    ],
)
def test_a_name_of_a_host_runs_no_program_in_a_match_of_the_ssh_config(tmp_path, monkeypatch, machine):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MachineError, match="cannot be the name of a machine"):
        hops(tmp_path, 'Match host *touch* exec "test -n %h"\n User me\n', machine)
    assert not (tmp_path / "ran").exists()


def test_a_proxy_command_is_refused_with_what_would_help(tmp_path):
    with pytest.raises(MachineError, match="use ProxyJump"):
        hops(tmp_path, "Host a\n ProxyCommand nc %h %p\n", MachineConfig("a"))


# config


def section(**machine):
    return {
        "trialCommand": "true",
        "trialConcurrency": 1,
        "searchSpace": {"x": {"_type": "choice", "_value": [1]}},
        "tuner": {"name": "Random"},
        "trainingService": {"platform": "remote", "machineList": [{"host": "box", "user": "me", **machine}]},
    }


def test_a_password_from_the_environment_is_shown_nowhere(tmp_path, monkeypatch):
    monkeypatch.setenv("SSH_PASSWORD", "hush-hush")
    config = from_dict(section(password="${env:SSH_PASSWORD}"), tmp_path).checked()
    [(_, _, remote)] = config.services
    assert remote.machine_list[0].password == "hush-hush"
    assert "hush-hush" not in repr(remote) + str(config.json())


def test_an_older_file_of_nni_is_taken(tmp_path):
    old = {
        "authorName": "me",
        "trialConcurrency": 1,
        "trainingServicePlatform": "remote",
        "searchSpace": {"x": {"_type": "choice", "_value": [1]}},
        "tuner": {"builtinTunerName": "Random"},
        "trial": {"command": "true", "codeDir": ".", "gpuNum": 0},
        "machineList": [{"ip": "10.1.1.1", "port": 22, "username": "bob", "passwd": "bob123"}],
    }
    old["searchSpacePath"] = "space.json"
    (tmp_path / "space.json").write_text('{"x": {"_type": "choice", "_value": [1]}}')
    del old["searchSpace"]
    [(_, _, remote)] = from_dict(old, tmp_path).checked().services
    assert (remote.machine_list[0].host, remote.machine_list[0].user) == ("10.1.1.1", "bob")


@pytest.mark.parametrize("field", [{"host": "-oProxyCommand=x"}, {"slots": 0}, {"port": 70000}, {"user": "a\nb"}])
def test_machines_that_cannot_be_are_refused(tmp_path, field):
    with pytest.raises(ConfigError):
        from_dict(section(**field), tmp_path).checked()


def test_labels_that_no_machine_has_are_refused(tmp_path):
    data = section(labels=["big"])
    data["trainingService"]["machineLabels"] = ["huge"]
    with pytest.raises(ConfigError, match="no machine has the label 'huge'"):
        from_dict(data, tmp_path).checked()


# placement


def test_a_job_goes_to_the_machine_with_the_most_room():
    machines = [HostCandidate("a", "a", slots=4, jobs={"1": (), "2": ()}), HostCandidate("b", "b", slots=1)]
    assert choose_machines(machines, None, set()) == [Choice("b", None)]
    machines[1] = HostCandidate("b", "b", slots=1, jobs={"3": ()})
    assert choose_machines(machines, 0, set()) == [Choice("a", ())]


def test_a_job_goes_first_where_its_checkpoints_are_and_last_where_it_was_lost():
    machines = [
        HostCandidate("a", "a", rank=1),
        HostCandidate("b", "b", jobs={"1": ()}),
        HostCandidate("c", "c", slots=1, rank=-1),
    ]
    assert choose_machines(machines, None, set()) == [Choice("c", None)]
    assert choose_machines(machines[:2], None, set()) == [Choice("b", None)]
    assert choose_machines(machines[:1], None, set()) == [Choice("a", None)]


def test_each_machine_tells_why_it_takes_nothing():
    machines = [
        HostCandidate("a", "a", trouble="is down: no answer"),
        HostCandidate("b", "b", slots=1, jobs={"1": ()}),
        HostCandidate("c", "c", gpus=[Gpu(0)], jobs={"2": (0,)}),
    ]
    with pytest.raises(NoCapacity) as caught:
        choose_machines(machines, 1, set())
    for part in ("a is down: no answer", "b runs 1 of 1 trials (slots)", "c waits for a GPU: GPU 0 runs a trial"):
        assert part in str(caught.value)


def test_bookings_outlive_the_manager_and_broken_files(tmp_path):
    place = tmp_path / "jobs.json"
    Bookings(place).book("job", Booking("box", "/d", (0, 1)))
    again = Bookings(place)
    again.load()
    assert again.get("job") == Booking("box", "/d", (0, 1))
    place.write_text("{")
    Bookings(place).load()


def test_a_booking_that_cannot_be_written_is_not_in_memory_either(tmp_path, monkeypatch):
    bookings, booking = Bookings(tmp_path / "jobs.json"), Booking("box", "/d")
    with monkeypatch.context() as full:
        full.setattr("nnilite_remote._bookings.write_private", no_space)
        for _ in range(2):
            with pytest.raises(ServiceError, match="No space left"):
                bookings.book("job", booking)
            assert bookings.get("job") is None
    bookings.book("job", booking)
    again = Bookings(tmp_path / "jobs.json")
    again.load()
    assert again.get("job") == booking


def test_a_command_that_could_not_be_written_is_written_by_the_next_call(tmp_path, monkeypatch):
    place, handle = tmp_path / "owed.json", {"machine": "box", "job": "j", "directory": "/d"}
    commands, again = PendingCommands(place), PendingCommands(place)
    with monkeypatch.context() as full:
        full.setattr("nnilite_remote._pending_commands.write_private", no_space)
        with pytest.raises(ServiceError, match="No space left"):
            commands.add(CANCEL, handle)
    assert commands.to("box") == [(CANCEL, handle)]
    commands.add(CANCEL, handle)
    again.load()
    assert again.to("box") == [(CANCEL, handle)]


def no_space(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")


# what is sent and what comes


def test_the_command_of_an_agent_survives_any_shell():
    text = command(pythons('/opt/it\'s "$HOME" `x`'))
    assert "\n" not in text
    assert "!" not in text


class _Tar:
    def __init__(self, *members):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for info, data in members:
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        self._data = buffer.getvalue()

    def rest(self) -> bytes:
        return b""

    def read(self) -> bytes:
        piece, self._data = self._data[:1000], self._data[1000:]
        return piece


def _link(name: str, to: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, to
    return info


def test_a_fetched_folder_stays_inside_its_target(tmp_path):
    target = tmp_path / "target"
    inside, outside = _link("good", "a/file"), _link("bad", "../../secret")
    unpack_stream(
        _Tar((tarfile.TarInfo("a/file"), b"x"), (inside, b""), (outside, b""), (_link("a2", "/etc"), b"")), target
    )
    assert (target / "a/file").read_text() == "x"
    assert sorted(path.name for path in target.iterdir()) == ["a"]
    with pytest.raises(MachineError, match="outside"):
        unpack_stream(_Tar((tarfile.TarInfo("../evil"), b"x")), target)


# what machines are still to be told


def test_what_is_pending_outlives_the_manager_and_nothing_is_left_when_it_is_settled(tmp_path):
    place, handle = tmp_path / "owed.json", {"machine": "box", "job": "j", "directory": "/d"}
    PendingCommands(place).add(CANCEL, handle)
    again = PendingCommands(place)
    again.load()
    assert again.to("box") == [(CANCEL, handle)]
    assert (again.jobs(CANCEL), again.jobs(REMOVE), again.to("other")) == ({"j": handle}, {}, [])
    again.settle(CANCEL, handle)
    assert not place.exists()
    place.write_text("[[")
    again.load()


def test_gpus_that_no_machine_may_give_are_refused_before_anything_starts():
    machines = [MachineConfig(host=name, user="u", password="p", gpu_indices=[0]) for name in "ab"]
    with pytest.raises(ConfigError, match="is 2, but no machine's gpuIndices names so many") as error:
        RemoteConfig(machines, trial_gpu_number=2)
    assert error.value.place.field == "trialGpuNumber"
    RemoteConfig([*machines, MachineConfig(host="c", user="u", password="p")], trial_gpu_number=2)


@pytest.mark.parametrize("name", ["a..b", "a" * 70])
def test_a_name_that_no_machine_can_have_is_told(tmp_path, name):
    config = RemoteConfig([MachineConfig(name)], ssh_config_file=None, known_hosts_file=tmp_path / "known")
    with pytest.raises(MachineError, match="is not a valid name or address") as raised:
        connect(RouteMap(config).hops(config.machine_list[0]), HostKeyPolicy.IGNORE)
    assert raised.value.lasting
