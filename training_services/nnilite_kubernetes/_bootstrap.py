"""What pods run first, as the text of `python3 -c`. It needs Python 3.8 and nothing installed.

    python3 -I -S -c TEXT SECRET WORK MESSAGE ROLE RANK TASK CHECKPOINTS CODE

SECRET is the folder of the job's Secret, WORK the trial's folder, MESSAGE the file of which Kubernetes makes the
container's termination message, ROLE the name of the role, RANK the environment variable that has the pod's number
within it, TASK `run`, `resume` (go on where an earlier pod was) or `prepare` (get the code only, for containers whose
command is the operator's), CHECKPOINTS the folder for checkpoints, or -, CODE the folder of a volume that has
keeper and code, or -. It gets both from there, from an object store, from the Secret or from the manager, writes
the keeper's specification and becomes the keeper.

A pod that stays is a node that is paid for, so the keeper does not wait for long for a manager that is away: what it
could not deliver is printed, and read from the pod's log by the service.
"""

BOOTSTRAP = r'''
import base64, hashlib, http.client, json, os, runpy, shutil, signal, ssl, subprocess, sys, time
import urllib.error, urllib.request, zlib

secret, work, message, role, rank_name, task = sys.argv[1:7]
checkpoints, code_folder = ("" if word == "-" else word for word in sys.argv[7:9])
ended, begun = {}, []


def tell(code, text):
    ended.setdefault("code", code)
    ended.setdefault("message", text)


def stop(number, frame):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    tell(None, "canceled before its command was started")
    for spec in begun:
        apologize(spec, ended["message"])
    sys.exit(143)


def read(name):
    with open(os.path.join(secret, name), "rb") as file:
        return file.read()


def has(name):
    return os.path.exists(os.path.join(secret, name))


def write(path, data):
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def fetch(spec, path, body=None):
    request = urllib.request.Request(read("callback").decode().strip() + path, data=body)
    request.add_header("Authorization", "Bearer " + spec["token"])
    request.add_header("Content-Type", "application/json")
    request.add_header("X-Nnilite-Job", spec["job"])
    context = None
    if request.full_url.startswith("https:"):
        context = ssl.create_default_context(cadata=spec.get("callback_ca"))
        context.check_hostname = not spec.get("callback_ca")
    with urllib.request.urlopen(request, timeout=30, context=context) as answer:
        return answer.read()


def patiently(what, place, call, limit=900):
    """The answer of a call that may fail for a while."""
    deadline, pause, told = time.monotonic() + limit, 0.2, ""
    while True:
        try:
            return call()
        except (OSError, ValueError, http.client.HTTPException) as error:
            refused = isinstance(error, urllib.error.HTTPError) and error.code in (401, 403, 404, 410)
            if refused or time.monotonic() > deadline:
                raise SystemExit("%s cannot be fetched from %s: %s" % (what, place, error))
            if str(error) != told:
                told = str(error)
                print("%s cannot be reached yet: %s" % (place, error), file=sys.stderr, flush=True)
        time.sleep(pause)
        pause = min(10, 2 * pause)


def loaded(url, path):
    """An object of a store, written to a file."""
    with urllib.request.urlopen(url, timeout=30) as answer, open(path, "wb") as file:
        shutil.copyfileobj(answer, file)
        wanted = answer.headers.get("Content-Length")
        if wanted and int(wanted) != file.tell():
            raise OSError("the connection broke off")


def on_volume(name):
    """A file of the volume, which a network file system may show late."""
    path = os.path.join(code_folder, name)
    patiently(name, "the volume", lambda: os.stat(path), 120)
    return path


def get_keeper(spec, whole, target):
    if has("keeper"):
        write(target, zlib.decompress(read("keeper")))
    elif code_folder:
        shutil.copyfile(on_volume("keeper-%s.pyz" % whole["keeper_hash"]), target)
    elif whole.get("urls"):
        patiently("the keeper", "storage", lambda: loaded(whole["urls"]["keeper"], target))
    else:
        write(target, patiently("the keeper", "the manager", lambda: fetch(spec, "/api/v1/keeper.pyz")))
        return
    with open(target, "rb") as file:
        if hashlib.sha256(file.read()).hexdigest() != whole["keeper_hash"]:
            raise SystemExit("the keeper in storage is damaged, or not ours")


def get_code(spec, whole, place):
    """Where the keeper finds the code; it checks what it unpacks."""
    archive = os.path.join(place, whole["code_hash"] + ".tar.gz")
    if has("code"):
        write(archive, read("code"))
    elif code_folder:
        archive = on_volume(whole["code_hash"] + ".tar.gz")
    elif whole.get("urls"):
        patiently("the code", "storage", lambda: loaded(whole["urls"]["code"], archive))
    else:
        return
    spec["code"] = {"archive": archive}


def specification(whole):
    spec = whole["spec"]
    own = (whole.get("roles") or {}).get(role) or {}
    spec.update(own.get("spec") or {})
    rank = os.environ.get(rank_name) or "0"
    reporting = own.get("reports", True) and rank == "0"
    if not reporting:
        spec.update(report="stdout", send_output=True)
        work_of = os.path.join(work, role + "-" + rank) if whole.get("shared") else work
    else:
        work_of = work
    if task == "resume":
        work_of = os.path.join(work_of, "group-" + (os.environ.get("ADAPTDL_NUM_RESTARTS") or "0"))
    spec.update(directory=work_of, checkpoint_dir=checkpoints or None)
    spec["callback_file"] = os.path.join(secret, "callback")
    if whole.get("logs_stay", True):
        spec["linger_s"] = min(float(spec.get("linger_s") or 0), 10.0)
    return spec, not reporting or whole.get("logs_stay", True)


def apologize(spec, text):
    if spec.get("report") == "stdout":
        return
    event = {"type": "exit", "time": time.time(), "code": None, "message": text}
    try:
        fetch(spec, "/api/v1/callback/" + spec["job"], json.dumps({"events": [event]}).encode())
    except (OSError, ValueError, http.client.HTTPException) as error:
        print("this cannot be told to the manager: %s" % error, file=sys.stderr, flush=True)


def leave(spec, keeper, place):
    """Print what could not be delivered."""
    try:
        with open(os.path.join(spec["directory"], ".nni", "delivered"), encoding="utf-8") as file:
            delivered = json.load(file)
    except (OSError, ValueError):
        return
    if delivered.get("complete") or delivered.get("fenced") or spec.get("report") == "stdout":
        return
    for stream, offset in (delivered.get("output") or {}).items():
        with open(os.path.join(spec["directory"], "trial." + stream), "rb") as file:
            file.seek(offset)
            data = base64.b64encode(file.read(1000000)).decode()
        event = {"type": "output", "stream": stream, "offset": offset, "data": data}
        print("NNILITE_EVENT " + json.dumps(event), flush=True)
    path = os.path.join(place, "left.json")
    write(path, json.dumps(dict(spec, report="stdout", send_output=False)).encode())
    os.closerange(3, 1024)  # what the keeper had open, the lock of its folder among it
    subprocess.call([sys.executable, "-I", "-S", keeper, "deliver", spec["directory"], path])


def outcome(spec):
    found = {}
    for name in ("started", "exit"):
        try:
            with open(os.path.join(spec["directory"], ".nni", name), encoding="utf-8") as file:
                found[name] = json.load(file)
        except (OSError, ValueError):
            found[name] = None
    if found["exit"]:
        ended.update(
            code=found["exit"].get("code"), message=str(found["exit"].get("message") or "")[-1500:],
            started=(found["started"] or {}).get("time"), ended=found["exit"].get("time"))


def main():
    whole = json.loads(zlib.decompress(read("spec")))
    if task == "prepare" and whole.get("shared"):
        return  # on the trial's volume the reporting pod puts it, in the same place
    spec, log_stays = specification(whole)
    begun.append(spec)
    os.makedirs(spec["directory"], mode=0o700, exist_ok=True)
    place = os.path.join(work, ".boot-" + role + "-" + str(os.getpid()))
    os.makedirs(place, mode=0o700, exist_ok=True)
    keeper = os.path.join(place, "keeper.pyz")
    try:
        get_keeper(spec, whole, keeper)
        get_code(spec, whole, place)
    except SystemExit as error:
        if isinstance(error.code, str):
            apologize(spec, error.code)
        raise
    path = os.path.join(place, "spec.json")
    write(path, json.dumps(spec).encode())
    if task == "resume":
        resume(keeper, spec, path)
        return
    if task == "prepare":
        prepare(keeper, spec, place)
        return
    sys.argv[:] = [keeper, "run", path]
    try:
        runpy.run_path(keeper, run_name="__main__")
    finally:
        outcome(spec)
        leave(spec, keeper, place)
        if spec.get("report") == "stdout" and not log_stays:
            time.sleep(10)  # the log goes with the pod, and the service has yet to read its end


def resume(keeper, spec, path):
    """Run until the scheduler ends this pod: then the trial is told to save itself, and the manager nothing."""
    take_over(spec["directory"])
    wanted = []
    signal.signal(signal.SIGTERM, lambda number, frame: wanted.append(number))
    child = subprocess.Popen([sys.executable, "-I", "-S", keeper, "run", path])
    while child.poll() is None and not wanted:
        time.sleep(0.1)
    if not wanted:
        outcome(spec)
        sys.exit(1 if child.returncode == 143 else child.returncode)  # by 143 the scheduler knows its own doing
    child.kill()
    child.wait()
    end_group(os.path.join(spec["directory"], ".nni", "started"), float(spec.get("grace_s") or 10))
    sys.exit(143)


def take_over(directory):
    """What an earlier group has reported and printed comes first: numbers go on from there."""
    base, number = directory.rsplit("-", 1)
    earlier = [base + "-" + str(n) for n in range(int(number) - 1, -1, -1)]
    found = [folder for folder in earlier if os.path.exists(os.path.join(folder, ".nni", "metrics"))]
    for name in (".nni/metrics", "trial.stdout", "trial.stderr"):
        target = os.path.join(directory, name)
        if found and os.path.exists(os.path.join(found[0], name)) and not os.path.exists(target):
            os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
            with open(os.path.join(found[0], name), "rb") as file:
                write(target, file.read())


def end_group(started, grace):
    try:
        with open(started, encoding="utf-8") as file:
            group = int(json.load(file)["pid"])
        os.killpg(group, signal.SIGTERM)
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline:
            time.sleep(0.05)
            os.killpg(group, 0)
        os.killpg(group, signal.SIGKILL)
    except (OSError, ValueError, KeyError):
        pass


def prepare(keeper, spec, place):
    sys.path.insert(0, keeper)
    from nnilite_keeper import link, spec as specs, working_copy

    code = spec.get("code") or {}
    archive = code.get("archive")
    if code.get("download"):
        archive = working_copy.download(link.RestLink(specs.parse(spec)), code["download"], place, lambda: False)
    target = os.path.join(spec["directory"], "code")
    if archive and not os.path.exists(target):
        working_copy.unpack(archive, target)


signal.signal(signal.SIGTERM, stop)
try:
    main()
except SystemExit as error:
    if isinstance(error.code, str):
        tell(None, error.code)
    raise
except Exception as error:
    tell(None, "the trial could not be prepared in its pod: %s: %s" % (type(error).__name__, error))
    raise
finally:
    if ended:
        try:
            with open(message, "w", encoding="utf-8") as file:
                json.dump({"nnilite": ended}, file)
        except OSError:
            pass
'''
