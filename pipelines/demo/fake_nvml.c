/*
 * A stand-in for libnvidia-ml.so.1 that the real nvidia-ml-py loads: GPUs described by environment variables.
 * A name with _<i> at its end, such as FAKE_NVML_LIMIT_MW_1, describes GPU i alone.
 *
 *   FAKE_NVML_GPUS          how many GPUs; unset: the driver is not loaded
 *   FAKE_NVML_INIT          NVML's number of the error that opening it gives
 *   FAKE_NVML_LOST          "yes": the GPU has fallen off the bus, and answers no call any more
 *   FAKE_NVML_NAME          model (default: Fake GPU)
 *   FAKE_NVML_ENERGY        "unsupported": no energy counter; "stuck": one that always shows 0
 *   FAKE_NVML_POWER         "unsupported": the power can't be read; "stuck": it is always said to be 0
 *   FAKE_NVML_UTILISATION   share of time at work in percent; unset: not supported
 *   FAKE_NVML_LIMITS        "unsupported": tells no power limits
 *   FAKE_NVML_SET           "denied": limits need privilege; "unsupported"; "ignored": accepted without effect
 *   FAKE_NVML_MIG           "on": divided into parts
 *   FAKE_NVML_PROCESS       a process that computes on it
 *   FAKE_NVML_NOT_READY     how many calls about power limits answer "not ready" before the first real answer
 *   FAKE_NVML_KILL_AT       moment (from 1) at which the process is killed: before a call about power limits, or after
 *                           one has been set
 *   FAKE_NVML_FAIL_AT       reading of the energy counter (from 1) that fails once
 *   FAKE_NVML_RESET_AT      reading of the energy counter (from 1) at which it restarts at 0
 *   FAKE_NVML_LOWEST_MW, FAKE_NVML_HIGHEST_MW, FAKE_NVML_DEFAULT_MW, FAKE_NVML_LIMIT_MW
 *                           power limits: allowed, at boot, and now (100000, 300000, 300000, 250000)
 *   FAKE_NVML_STATE         file in which limits and counters live, shared by all processes that name it
 *   FAKE_NVML_CURVE         "wall": the counters advance with time, by the power that the limit lets the GPU draw;
 *                           "virtual": the same with a clock that only fake_nvml_work moves
 *   FAKE_NVML_IDLE_MW, FAKE_NVML_BUSY_MW
 *                           power without any work and without any limit (80000, 280000)
 *
 * Without a curve GPU i draws 100 * (i + 1) W, and its counter gains 1000 * (i + 1) mJ with every reading, so that
 * tests need no time. With one it draws min(busy, limit): the power above idle grows with the cube of the clock rate,
 * so that work takes cbrt((busy - idle) / (limit - idle)) times as long under a limit.
 *
 * GPU i's UUID starts with GPU-<i><i> and ends with what its state's file makes of it, so that GPUs whose limits are
 * apart have names apart; MIG-part-of-<i> is a part of it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define MOST 16
enum {
    SUCCESS = 0,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    NOT_LOADED = 9,
    GPU_IS_LOST = 15,
    NOT_READY = 27
};

typedef struct {
    int index;
    int is_part;
    int readings;
    int offset;
    int not_ready;
} Device;

typedef struct {
    double virtual_s;
    double since_s[MOST];
    double energy_j[MOST];
    int limit_mw[MOST]; /* 0: never set */
    int set_count[MOST];
} State;

static Device devices[MOST], parts[MOST];
static State private_state, *state = &private_state;
static char state_path[4096];
static int state_file = -1, users = 0;

static const char *text(const char *name, int index) {
    char full[64];
    snprintf(full, sizeof full, "%s_%d", name, index);
    return getenv(full) ? getenv(full) : getenv(name);
}

static int number(const char *name, int index, int otherwise) {
    const char *value = text(name, index);
    return value ? atoi(value) : otherwise;
}

static int says(const char *name, int index, const char *word) {
    const char *value = text(name, index);
    return value && strcmp(value, word) == 0;
}

static int count(void) { return getenv("FAKE_NVML_GPUS") ? atoi(getenv("FAKE_NVML_GPUS")) : -1; }

static void lock(void) {
    if (state_file >= 0) flock(state_file, LOCK_EX);
}

static void unlock(void) {
    if (state_file >= 0) flock(state_file, LOCK_UN);
}

static void open_state(void) {
    const char *path = getenv("FAKE_NVML_STATE") ? getenv("FAKE_NVML_STATE") : "";
    if (strcmp(path, state_path) == 0) return;
    if (state_file >= 0) close(state_file);
    state_file = -1;
    state = &private_state;
    snprintf(state_path, sizeof state_path, "%s", path);
    memset(&private_state, 0, sizeof private_state);
    private_state.virtual_s = 1000;
    if (!*path) return;
    state_file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (state_file < 0 || ftruncate(state_file, sizeof(State)) != 0) abort();
    state = mmap(NULL, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, state_file, 0);
    if (state == MAP_FAILED) abort();
    if (state->virtual_s == 0) state->virtual_s = 1000;
}

static int limit_mw(int index) {
    return state->limit_mw[index] ? state->limit_mw[index] : number("FAKE_NVML_LIMIT_MW", index, 250000);
}

static int is_lost(Device *device) { return says("FAKE_NVML_LOST", device->index, "yes"); }

static int has_curve(void) { return getenv("FAKE_NVML_CURVE") != NULL; }

static double now_s(void) {
    if (says("FAKE_NVML_CURVE", 0, "virtual")) return state->virtual_s;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static double power_w(int index) {
    if (!has_curve()) return 100.0 * (index + 1);
    int busy_mw = number("FAKE_NVML_BUSY_MW", index, 280000);
    return (busy_mw < limit_mw(index) ? busy_mw : limit_mw(index)) / 1000.0;
}

/* Bring a counter up to now; to be called, under the lock, before the power changes. */
static void settle(int index) {
    double now = now_s();
    if (state->since_s[index] > 0) state->energy_j[index] += power_w(index) * (now - state->since_s[index]);
    state->since_s[index] = now;
}

/* How many times as long work takes under the limit of a GPU. */
API double fake_nvml_slowdown(int index) {
    double idle_mw = number("FAKE_NVML_IDLE_MW", index, 80000), busy_mw = number("FAKE_NVML_BUSY_MW", index, 280000);
    return limit_mw(index) >= busy_mw ? 1.0 : cbrt((busy_mw - idle_mw) / fmax(limit_mw(index) - idle_mw, 1.0));
}

/* Do work that takes `work_s` without any limit: the virtual clock moves on by what it takes under GPU 0's. */
API double fake_nvml_work(double work_s) {
    open_state();
    lock();
    for (int i = 0; i < MOST; i++) settle(i);
    state->virtual_s += work_s * fake_nvml_slowdown(0);
    for (int i = 0; i < MOST; i++) settle(i);
    unlock();
    return state->virtual_s;
}

/* How often a limit of a GPU was set. */
API int fake_nvml_set_count(int index) {
    open_state();
    return state->set_count[index];
}

API int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (getenv("FAKE_NVML_INIT")) return atoi(getenv("FAKE_NVML_INIT"));
    if (count() < 0) return NOT_LOADED;
    open_state();
    if (users++ > 0) return SUCCESS;
    memset(devices, 0, sizeof devices);
    for (int i = 0; i < MOST; i++) devices[i].index = parts[i].index = i, parts[i].is_part = 1;
    return SUCCESS;
}

API int nvmlShutdown(void) {
    users--;
    return SUCCESS;
}

API const char *nvmlErrorString(int code) {
    switch (code) {
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_LOADED: return "Driver Not Loaded";
    default: return "Fake error";
    }
}

API int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    snprintf(version, length, "570.0.fake");
    return SUCCESS;
}

API int nvmlDeviceGetCount_v2(unsigned *result) {
    *result = (unsigned)count();
    return SUCCESS;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    if ((int)index >= count()) return INVALID_ARGUMENT;
    *device = &devices[index];
    return is_lost(*device) ? GPU_IS_LOST : SUCCESS;
}

API int nvmlDeviceGetHandleByUUID(const char *uuid, Device **device) {
    int index;
    if (sscanf(uuid, "MIG-part-of-%d", &index) != 1 || index >= count()) return NOT_FOUND;
    *device = &parts[index];
    return SUCCESS;
}

API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device *part, Device **device) {
    if (!part->is_part) return INVALID_ARGUMENT;
    *device = &devices[part->index];
    return SUCCESS;
}

API int nvmlDeviceGetUUID(Device *device, char *uuid, unsigned length) {
    unsigned long long hash = 0xcbf29ce484222325; /* FNV-1a */
    for (const char *c = state_path; *c; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001b3;
    snprintf(uuid, length, "GPU-%d%d345678-%016llx", device->index, device->index, hash);
    return SUCCESS;
}

API int nvmlDeviceGetName(Device *device, char *name, unsigned length) {
    const char *model = text("FAKE_NVML_NAME", device->index);
    snprintf(name, length, "%s", model ? model : "Fake GPU");
    return SUCCESS;
}

API int nvmlDeviceGetTotalEnergyConsumption(Device *device, unsigned long long *energy_mj) {
    int index = device->index;
    if (is_lost(device)) return GPU_IS_LOST;
    if (says("FAKE_NVML_ENERGY", index, "unsupported")) return NOT_SUPPORTED;
    if (says("FAKE_NVML_ENERGY", index, "stuck")) return *energy_mj = 0, SUCCESS;
    device->readings++;
    if (device->readings == number("FAKE_NVML_FAIL_AT", index, 0)) return GPU_IS_LOST;
    if (device->readings == number("FAKE_NVML_RESET_AT", index, 0)) device->offset = device->readings;
    if (has_curve()) {
        lock();
        settle(index);
        *energy_mj = (unsigned long long)(5e8 * (index + 1) + state->energy_j[index] * 1000);
        unlock();
        return SUCCESS;
    }
    int base = device->offset ? 0 : 500000;
    *energy_mj = base + 1000ULL * (index + 1) * (device->readings - device->offset);
    return SUCCESS;
}

API int nvmlDeviceGetPowerUsage(Device *device, unsigned *power_mw) {
    if (is_lost(device)) return GPU_IS_LOST;
    if (says("FAKE_NVML_POWER", device->index, "unsupported")) return NOT_SUPPORTED;
    if (says("FAKE_NVML_POWER", device->index, "stuck")) return *power_mw = 0, SUCCESS;
    *power_mw = (unsigned)(power_w(device->index) * 1000);
    return SUCCESS;
}

typedef struct {
    unsigned pid;
    unsigned long long memory;
    unsigned instance, part;
} Process;

API int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *room, Process *processes) {
    int pid = number("FAKE_NVML_PROCESS", device->index, 0);
    unsigned had = *room;
    *room = pid ? 1 : 0;
    if (*room > had) return INSUFFICIENT_SIZE;
    if (pid) processes[0] = (Process){(unsigned)pid, 1 << 20, 0, 0};
    return SUCCESS;
}

API int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    *current = *pending = says("FAKE_NVML_MIG", device->index, "on");
    return SUCCESS;
}

API int nvmlDeviceGetUtilizationRates(Device *device, unsigned rates[2]) {
    rates[0] = (unsigned)number("FAKE_NVML_UTILISATION", device->index, 0), rates[1] = 0;
    return text("FAKE_NVML_UTILISATION", device->index) ? SUCCESS : NOT_SUPPORTED;
}

static void moment(void) {
    static int moments = 0;
    if (getenv("FAKE_NVML_KILL_AT") && ++moments == atoi(getenv("FAKE_NVML_KILL_AT"))) kill(getpid(), SIGKILL);
}

static int about_limits(Device *device) {
    moment();
    if (is_lost(device)) return GPU_IS_LOST;
    if (device->not_ready++ < number("FAKE_NVML_NOT_READY", device->index, 0)) return NOT_READY;
    return says("FAKE_NVML_LIMITS", device->index, "unsupported") ? NOT_SUPPORTED : SUCCESS;
}

API int nvmlDeviceGetPowerManagementLimit(Device *device, unsigned *result_mw) {
    *result_mw = (unsigned)limit_mw(device->index);
    return about_limits(device);
}

API int nvmlDeviceGetPowerManagementDefaultLimit(Device *device, unsigned *result_mw) {
    *result_mw = (unsigned)number("FAKE_NVML_DEFAULT_MW", device->index, 300000);
    return about_limits(device);
}

API int nvmlDeviceGetPowerManagementLimitConstraints(Device *device, unsigned *lowest_mw, unsigned *highest_mw) {
    *lowest_mw = (unsigned)number("FAKE_NVML_LOWEST_MW", device->index, 100000);
    *highest_mw = (unsigned)number("FAKE_NVML_HIGHEST_MW", device->index, 300000);
    return about_limits(device);
}

API int nvmlDeviceSetPowerManagementLimit(Device *device, unsigned asked_mw) {
    int index = device->index, code = about_limits(device);
    if (code != SUCCESS) return code;
    if (says("FAKE_NVML_SET", index, "denied")) return NO_PERMISSION;
    if (says("FAKE_NVML_SET", index, "unsupported")) return NOT_SUPPORTED;
    int lowest_mw = number("FAKE_NVML_LOWEST_MW", index, 100000), highest_mw = number("FAKE_NVML_HIGHEST_MW", index, 300000);
    if ((int)asked_mw < lowest_mw || (int)asked_mw > highest_mw) return INVALID_ARGUMENT;
    if (says("FAKE_NVML_SET", index, "ignored")) return SUCCESS;
    lock();
    settle(index);
    state->limit_mw[index] = (int)asked_mw;
    state->set_count[index]++;
    unlock();
    moment();
    return SUCCESS;
}
