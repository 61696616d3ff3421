/* A libnvidia-ml.so.1 without a GPU: what nvidia-ml-py calls, answered from the text file $SIMULATED_GPUS, which is
 * read anew at each call, so that a test can change the machine while a program looks at it. Lines:
 *
 *   gpu NAME TOTAL_MB USED_MB UTILIZATION     one GPU; numbered from 0. "-" for a number: the GPU does not tell
 *   compute GPU PID MB                        a computing process on a GPU
 *   graphics GPU PID MB                       a drawing process on a GPU
 *   lost GPU                                  the GPU has fallen off the bus
 *   fail CODE                                 nvmlInit fails with this code
 *   hang SECONDS                              nvmlInit takes so long
 *
 * The structs and codes are those of NVIDIA's public nvml.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, UNSUPPORTED = 3, TOO_SMALL = 7, NO_DRIVER = 9, LOST = 15 };
enum { MOST_GPUS = 16, MOST_PROCESSES = 128, COMPUTE = 0, GRAPHICS = 1 };

typedef struct { unsigned pid; unsigned long long bytes; unsigned instance, compute_instance; } Process;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct {
    char name[96];
    long total_mb, used_mb, utilization; /* -1: not told */
    int lost;
    unsigned count[2];
    Process processes[2][MOST_PROCESSES];
} Gpu;

static Gpu gpus[MOST_GPUS];
static unsigned gpu_count, fail_code, hang_s;
static int users;

static long number(const char *text) { return strcmp(text, "-") == 0 ? -1 : atol(text); }

static void add_process(int kind, unsigned gpu, unsigned pid, unsigned long long mb)
{
    if (gpu >= gpu_count || gpus[gpu].count[kind] >= MOST_PROCESSES) return;
    Process *p = &gpus[gpu].processes[kind][gpus[gpu].count[kind]++];
    p->pid = pid;
    p->bytes = mb << 20;
    p->instance = p->compute_instance = ~0u;
}

static void take(const char *line)
{
    char name[96], total[32], used[32], utilization[32];
    unsigned gpu, pid;
    unsigned long long mb;
    if (sscanf(line, "gpu %95s %31s %31s %31s", name, total, used, utilization) == 4 && gpu_count < MOST_GPUS) {
        Gpu *g = &gpus[gpu_count++];
        memset(g, 0, sizeof *g);
        strcpy(g->name, name);
        g->total_mb = number(total);
        g->used_mb = number(used);
        g->utilization = number(utilization);
    } else if (sscanf(line, "compute %u %u %llu", &gpu, &pid, &mb) == 3) add_process(COMPUTE, gpu, pid, mb);
    else if (sscanf(line, "graphics %u %u %llu", &gpu, &pid, &mb) == 3) add_process(GRAPHICS, gpu, pid, mb);
    else if (sscanf(line, "lost %u", &gpu) == 1 && gpu < gpu_count) gpus[gpu].lost = 1;
    else if (sscanf(line, "fail %u", &fail_code) == 1) return;
    else sscanf(line, "hang %u", &hang_s);
}

static int load(void)
{
    const char *place = getenv("SIMULATED_GPUS");
    FILE *file = place ? fopen(place, "r") : NULL;
    char line[512];
    if (!file) return NO_DRIVER;
    gpu_count = fail_code = hang_s = 0;
    while (fgets(line, sizeof line, file)) take(line);
    fclose(file);
    return OK;
}

/* The GPU behind a handle, in `*gpu`; or the code to return. */
static int find(void *device, Gpu **gpu)
{
    unsigned long index = (unsigned long)device - 1;
    if (!users) return UNINITIALIZED;
    if (load() != OK || index >= gpu_count) return INVALID;
    if (gpus[index].lost) return LOST;
    *gpu = &gpus[index];
    return OK;
}

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    int code = load();
    if (code != OK) return code;
    if (hang_s) sleep(hang_s);
    if (fail_code) return (int)fail_code;
    users++;
    return OK;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void)
{
    if (!users) return UNINITIALIZED;
    users--;
    return OK;
}

const char *nvmlErrorString(int code)
{
    switch (code) {
    case OK: return "Success";
    case NO_DRIVER: return "Driver Not Loaded";
    case LOST: return "GPU is lost";
    case UNSUPPORTED: return "Not Supported";
    default: return "Unknown Error";
    }
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    if (!users) return UNINITIALIZED;
    int code = load();
    *count = gpu_count;
    return code;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    if (!users) return UNINITIALIZED;
    if (load() != OK || index >= gpu_count) return INVALID;
    if (gpus[index].lost) return LOST;
    *device = (void *)(unsigned long)(index + 1);
    return OK;
}

int nvmlDeviceGetName(void *device, char *name, unsigned size)
{
    Gpu *gpu;
    int code = find(device, &gpu);
    if (code == OK) snprintf(name, size, "%s", gpu->name);
    return code;
}

int nvmlDeviceGetMemoryInfo(void *device, Memory *memory)
{
    Gpu *gpu;
    int code = find(device, &gpu);
    if (code != OK) return code;
    if (gpu->total_mb < 0) return UNSUPPORTED;
    memory->total = (unsigned long long)gpu->total_mb << 20;
    memory->used = (unsigned long long)gpu->used_mb << 20;
    memory->free = memory->total - memory->used;
    return OK;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, Memory2 *memory)
{
    Memory plain;
    int code = nvmlDeviceGetMemoryInfo(device, &plain);
    if (code != OK) return code;
    memory->total = plain.total;
    memory->used = plain.used;
    memory->free = plain.free;
    memory->reserved = 0;
    return OK;
}

int nvmlDeviceGetUtilizationRates(void *device, Utilization *rates)
{
    Gpu *gpu;
    int code = find(device, &gpu);
    if (code != OK) return code;
    if (gpu->utilization < 0) return UNSUPPORTED;
    rates->gpu = (unsigned)gpu->utilization;
    rates->memory = 0;
    return OK;
}

static int running(void *device, int kind, unsigned *count, Process *processes)
{
    Gpu *gpu;
    int code = find(device, &gpu);
    if (code != OK) return code;
    unsigned room = processes ? *count : 0;
    *count = gpu->count[kind];
    if (room < gpu->count[kind]) return TOO_SMALL;
    memcpy(processes, gpu->processes[kind], gpu->count[kind] * sizeof(Process));
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, Process *processes)
{
    return running(device, COMPUTE, count, processes);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, Process *processes)
{
    return running(device, GRAPHICS, count, processes);
}
