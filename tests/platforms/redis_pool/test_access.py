"""Passwords, ACL users and TLS; and what is said where something about them is wrong."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from nnictl_runs import nnictl
from nnilite.errors import ConfigError, ServiceError
from nnilite.service import JobState
from nnilite.testing import ServiceBench
from nnilite.testing.ports import free_port
from nnilite_redis import RedisConfig, RedisService
from platforms.redis_pool.server import ADMIN, Server, missing
from platforms.redis_pool.workers import WorkerProcess

DOCS = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "redis.md"

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("redis access")]


class SecureServer(Server):
    """With TLS alone, by a certificate of an authority of its own, and the ACL users of the documentation."""

    @property
    def url(self) -> str:
        return f"rediss://localhost:{self.port}/0"

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    def config(self):
        files = {"tls-cert-file": "cert.pem", "tls-key-file": "key.pem", "tls-ca-cert-file": "ca.pem"}
        paths = {name: f'"{self.folder / file}"' for name, file in files.items()}
        return {"port": "0", "tls-port": str(self.port), "tls-auth-clients": "no", **paths}

    def make_certificates(self) -> None:
        self._openssl("req -x509 -newkey rsa:2048 -nodes -subj /CN=ours -days 2 -keyout ca.key -out ca.pem")
        self._openssl("req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout key.pem -out request.pem")
        (self.folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        self._openssl("x509 -req -in request.pem -CA ca.pem -CAkey ca.key -days 2 -extfile names -out cert.pem")

    def _openssl(self, words: str) -> None:
        subprocess.run(["openssl", *words.split()], cwd=self.folder, check=True, capture_output=True)

    def client(self):
        import redis

        secure = {"ssl": True, "ssl_ca_certs": str(self.ca)}
        return redis.Redis(port=self.port, password=self.password, socket_timeout=5, **secure)


def documented_rules() -> dict[str, str]:
    """The ACL rules of both sides, as the documentation has them."""
    found = re.findall(r"^ACL SETUSER (\S+) (.*)$", DOCS.read_text(), re.MULTILINE)
    return dict(found)


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    if missing():
        pytest.skip(missing())
    server = SecureServer(tmp_path_factory.mktemp("secure"), password=ADMIN)
    server.make_certificates()
    server.start()
    server.settle()
    with server.client() as client:
        for user, rules in documented_rules().items():
            client.execute_command("ACL", "SETUSER", user, *rules.split())
    yield server
    server.stop()


def config(secure, **fields) -> RedisConfig:
    return RedisConfig(
        secure.url, **{"user": "manager", "password": "manager-password", "ca_file": secure.ca, **fields}
    )


def complaint(tmp_path, settings: RedisConfig) -> Exception:
    """What `open` raises."""
    bench = ServiceBench(tmp_path, lambda context: RedisService("redis", settings, context))
    with pytest.raises((ConfigError, ServiceError)) as raised:
        bench.__enter__()
    bench.__exit__()
    return raised.value


@pytest.fixture
def worker_of(tmp_path, secure):
    started = []

    def start(*more, password="worker-password") -> WorkerProcess:
        secret = tmp_path / "pass word"
        secret.write_text(password + "\n")
        options = ["--user", "worker", "--password-file", str(secret), "--ca-file", str(secure.ca), *more]
        started.append(WorkerProcess(secure.url, tmp_path / "worker", *options))
        return started[-1]

    yield start
    for worker in started:
        worker.stop()


def test_the_documented_rules_are_enough_for_both_sides_and_tls_works(secure, worker_of, tmp_path):
    worker_of().start()
    shared = config(secure, max_slots=2)
    with ServiceBench(tmp_path / "bench", lambda context: RedisService("redis", shared, context)) as bench:
        name = bench.python("import nnilite; nnilite.report_final_result(0.5); print('said')")
        assert bench.finish(name).values == [0.5]
        assert bench.call(bench.service.logs(bench.handles[name], "stdout", 0, 100)) == b"said\n"
        bench.call(bench.service.fetch(bench.handles[name], tmp_path / "fetched"))
        canceled = bench.run("sleep 60")
        bench.wait(canceled, JobState.RUNNING)
        bench.call(bench.service.cancel(bench.handles[canceled]))
        assert bench.wait(canceled).state is JobState.CANCELED
        bench.call(bench.service.remove(bench.handles.pop(name)))
        assert "NOPERM" not in (log := (tmp_path / "worker.log").read_text()), log
        assert "may not use" not in log


def test_every_rule_that_is_missing_is_named(secure, tmp_path):
    rules = documented_rules()["manager"].replace("+eval ", "").replace(">manager-password", ">p").replace("reset ", "")
    with secure.client() as client:
        client.execute_command("ACL", "SETUSER", "poor", "reset", *rules.split())
    assert "the user poor may not use the command eval: its ACL needs the rule +eval" in str(
        complaint(tmp_path, config(secure, user="poor", password="p"))
    )


def test_keys_out_of_reach_are_told_with_the_rule(secure, tmp_path):
    error = complaint(tmp_path, config(secure, prefix="other"))
    assert "the user manager may not use the keys: its ACL needs the rule ~PREFIX:*" in str(error)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"password": "wrong"}, "refuses the user manager: the password or the user is wrong"),
        ({"password": None, "user": None}, "refuses the default user: it wants a password"),
        ({"ca_file": None}, "is not trusted"),
    ],
)
def test_a_wrong_way_in_is_told_in_a_sentence(secure, tmp_path, fields, sentence):
    error = complaint(tmp_path, config(secure, **fields))
    assert sentence in str(error)
    assert isinstance(error, ConfigError)


def test_tls_where_there_is_none_is_told(shared_server, tmp_path, monkeypatch):
    monkeypatch.setattr("nnilite_redis._connection._CONNECT_S", 0.5)  # the server waits for the rest of a command
    error = complaint(tmp_path, RedisConfig(shared_server.url.replace("redis:", "rediss:")))
    assert "does not use TLS: then write redis:// instead of rediss://" in str(error)


def test_no_tls_where_there_is_is_told(secure, tmp_path):
    error = complaint(tmp_path, RedisConfig(secure.url.replace("rediss:", "redis:"), password=ADMIN))
    assert "or it wants TLS: then write rediss://" in str(error)


def test_no_server_is_told(tmp_path):
    port = free_port()
    error = complaint(tmp_path, RedisConfig(f"redis://127.0.0.1:{port}"))
    assert str(error).startswith(f"no Redis can be reached at 127.0.0.1:{port}:")
    assert "Does it run, and is the way there open?" in str(error)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--redis", "redis://:hidden@host"], "the URL must not hold the password"),
        (["--redis", "redis://[::1"], "'redis://[::1' is no URL"),
        (["--redis", "http://host"], "is not the address of a Redis server; write one like rediss://"),
        ([], "--redis is missing"),
        (["--redis", "redis://host", "--labels", "a b"], "is not a valid label"),
        (["--redis", "redis://host", "--password-file", "/no/such"], "/no/such cannot be read"),
        (["--redis", "redis://host", "--ca-file", "/no/such"], "/no/such is not a file"),
        (["--redis", "redis://127.0.0.1:1", "--folder", "FOLDER"], "no Redis can be reached at 127.0.0.1:1"),
    ],
)
def test_a_wrong_command_line_of_a_worker_gets_a_sentence(words, sentence, tmp_path):
    given = [str(tmp_path / "folder") if word == "FOLDER" else word for word in words]
    ran = nnictl("worker", *given, serves=False)
    assert ran.returncode in (1, 5)
    assert sentence in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "hidden" not in ran.stderr


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"redis": "redis://u:secret@host"}, "the URL must not hold the password"),
        ({"redis": "host:6379"}, "is not the address of a Redis server"),
        ({"prefix": "a b"}, "'a b' is not valid"),
        ({"worker_labels": ["a,b"]}, "is not a valid label"),
        ({"worker_healthy_period": 2}, "must be at least 3 s"),
        ({"worker_processors": 3, "worker_remote_processors": 2}, "means the same as another field, which is 3"),
    ],
)
def test_settings_that_cannot_be_are_refused(fields, sentence):
    with pytest.raises(ConfigError, match=re.escape(sentence)) as raised:
        RedisConfig(**{"redis": "redis://host", **fields})
    assert "secret" not in str(raised.value)


def test_the_names_of_driverless_ai_are_accepted():
    settings = RedisConfig("redis://host", worker_remote_processors=3, worker_healthy_response_period=200)
    assert (settings.worker_processors, settings.worker_healthy_period) == (3, 200)


def test_a_period_that_is_too_short_for_the_grace_is_refused(shared_server, tmp_path):
    error = complaint(tmp_path, RedisConfig(shared_server.url, worker_healthy_period=10))
    assert "must be at least twice gracePeriod, which is 10 s" in str(error)


def test_code_that_is_too_large_for_redis_is_refused_at_the_start(shared_server, tmp_path):
    error = complaint(tmp_path, RedisConfig(shared_server.url, redis_size_limit=100))
    assert "but redisSizeLimit is 100 B: set storage, or make it smaller" in str(error)
