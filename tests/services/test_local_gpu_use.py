"""How busy GPUs are, as the local service reads it: beside all else, and only while a job has some."""

from __future__ import annotations

from pathlib import Path

from nnilite.errors import ServiceError
from nnilite.services.gpu import Gpu, GpuReader
from nnilite_local import LocalConfig
from nnilite_local._gpus import GpuAllocator, make_gpu_rules


class Driver:
    """Tells of one GPU, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_broken = False

    def read(self) -> list[Gpu]:
        self.asked += 1
        if self.is_broken:
            raise ServiceError("the driver is gone")
        return [Gpu(0, "G", 80, 20, 93)]


async def glance(desk: GpuAllocator) -> None:
    """A glance, and all that comes of it."""
    desk.glance()
    if desk._glance is not None:
        await desk._glance


async def test_gpus_are_read_only_while_a_job_has_some_and_not_too_often(tmp_path: Path) -> None:
    driver = Driver()
    desk = GpuAllocator("e", make_gpu_rules(LocalConfig()), tmp_path / "gpus.json", GpuReader(driver.read, fresh_s=0))
    await glance(desk)
    assert (driver.asked, desk.seen) == (0, [])
    desk.rebook("job", tmp_path, (0,))
    for _ in range(3):
        await glance(desk)
    assert driver.asked == 1
    assert [gpu.utilization_percent for gpu in desk.seen] == [93]
    desk.free("job")
    assert desk.seen == []
    desk.close()


async def test_a_driver_that_is_broken_tells_nothing_and_harms_nothing(tmp_path: Path) -> None:
    driver = Driver()
    driver.is_broken = True
    desk = GpuAllocator("e", make_gpu_rules(LocalConfig()), tmp_path / "gpus.json", GpuReader(driver.read))
    desk.rebook("job", tmp_path, (0,))
    await glance(desk)
    assert (driver.asked, desk.seen) == (1, [])
