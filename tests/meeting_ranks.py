"""The program of a distributed trial in the tests: all ranks meet at MASTER_ADDR, and rank 0 reports who came.

python3 trial.py [RANK]     with a rank, this one fails after the meeting, and the others would wait for a minute
"""

MEETING = """
import json, os, socket, sys, time
import nnilite

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
me = {"rank": rank, "host": socket.gethostname(), "x": nnilite.get_next_parameter().get("x")}
print("here is", rank, flush=True)
if rank == 0:
    server = socket.create_server(("", address[1]))
    guests = [me]
    while len(guests) < size:
        with server.accept()[0] as guest:
            guests.append(json.loads(guest.makefile().readline()))
    hosts = sorted({guest["host"] for guest in guests})
    same = len({guest["x"] for guest in guests}) == 1
    ranks = sorted(guest["rank"] for guest in guests)
    nnilite.report_intermediate_result({"default": size, "ranks": ranks, "hosts": hosts, "same": same})
else:
    nnilite.report_intermediate_result(-1)
    deadline = time.monotonic() + 30
    while True:
        try:
            with socket.create_connection(address, 5) as met:
                met.sendall(json.dumps(me).encode() + b"\\n")
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
if sys.argv[1:] == [str(rank)]:
    sys.exit(f"rank {rank} fails")
if sys.argv[1:]:
    time.sleep(60)
nnilite.report_final_result(size)
"""
