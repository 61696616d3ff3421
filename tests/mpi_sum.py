"""The program of a trial in the tests that an MPI starts: all ranks add their numbers up, without mpi4py."""

from __future__ import annotations

import ctypes.util

SUM = """
import ctypes, ctypes.util, os, sys
import nnilite

mpi = ctypes.CDLL(ctypes.util.find_library("mpi") or "libmpi.so.40", ctypes.RTLD_GLOBAL)
given = [ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, "ompi_" + name)))
         for name in ("mpi_int", "mpi_op_sum", "mpi_comm_world")]
rank = int(os.environ["RANK"])
mine, total = ctypes.c_int(rank + 1), ctypes.c_int()
mpi.MPI_Init(None, None)
mpi.MPI_Allreduce(ctypes.byref(mine), ctypes.byref(total), 1, *given)
if sys.argv[1:] == [str(rank)]:
    sys.exit(f"rank {rank} fails")
nnilite.get_next_parameter()
nnilite.report_final_result(total.value)
mpi.MPI_Finalize()
if rank:
    print("rank", rank, "of", os.environ["WORLD_SIZE"] + ", local", os.environ["LOCAL_RANK"] + ", has", total.value)
"""
"""With the number of a rank as its argument, that one fails, and the others would wait for ever."""


def library() -> str | None:
    """Return the name of Open MPI's library; None if it is not installed."""
    return ctypes.util.find_library("mpi")
