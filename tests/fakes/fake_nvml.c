/*
 * A stand-in for libnvidia-ml.so.1 that the real nvidia-ml-py loads: what the meters ask, answered from
 * environment variables.
 *
 *   FAKE_NVML_GPUS          how many GPUs; unset: the driver is not loaded
 *   FAKE_NVML_NAME_<i>      model of GPU i (default: Fake GPU)
 *   FAKE_NVML_ENERGY        "unsupported": GPUs without an energy counter
 *   FAKE_NVML_POWER         "unsupported": GPUs whose power can't be read
 *   FAKE_NVML_LIMITS        "unsupported": GPUs that tell no power limits
 *   FAKE_NVML_FAIL_AT       reading of the energy counter (from 1) that fails once
 *   FAKE_NVML_RESET_AT      reading of the energy counter (from 1) at which it restarts at 0
 *   FAKE_NVML_LIMIT_MW_<i>  power limit of GPU i now (default: 250000)
 *
 * GPU i draws 100 * (i + 1) W. Its counter gains 1000 * (i + 1) mJ with every reading, so that tests need no time.
 * GPU i's UUID starts with GPU-<i><i>; MIG-part-of-<i> is a part of it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, NOT_LOADED = 9, GPU_IS_LOST = 15 };

#define MOST 16
typedef struct {
    int index;
    int is_part;
    int readings;
    int offset;
} Device;

static Device devices[MOST], parts[MOST];

static int number(const char *name, int otherwise) {
    const char *value = getenv(name);
    return value ? atoi(value) : otherwise;
}

static int numbered(const char *name, int index, int otherwise) {
    char full[64];
    snprintf(full, sizeof full, "%s_%d", name, index);
    return number(full, otherwise);
}

static int unsupported(const char *name) {
    const char *value = getenv(name);
    return value && strcmp(value, "unsupported") == 0;
}

static int count(void) { return number("FAKE_NVML_GPUS", -1); }

API int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    for (int i = 0; i < MOST; i++) devices[i].index = parts[i].index = i, parts[i].is_part = 1;
    return count() < 0 ? NOT_LOADED : SUCCESS;
}

API int nvmlShutdown(void) { return SUCCESS; }

API const char *nvmlErrorString(int code) { return code == NOT_SUPPORTED ? "Not Supported" : "Fake error"; }

API int nvmlDeviceGetCount_v2(unsigned *result) {
    *result = (unsigned)count();
    return SUCCESS;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    if ((int)index >= count()) return INVALID_ARGUMENT;
    *device = &devices[index];
    return SUCCESS;
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
    snprintf(uuid, length, "GPU-%d%d345678-fake", device->index, device->index);
    return SUCCESS;
}

API int nvmlDeviceGetName(Device *device, char *name, unsigned length) {
    char variable[64];
    snprintf(variable, sizeof variable, "FAKE_NVML_NAME_%d", device->index);
    const char *model = getenv(variable);
    snprintf(name, length, "%s", model ? model : "Fake GPU");
    return SUCCESS;
}

API int nvmlDeviceGetTotalEnergyConsumption(Device *device, unsigned long long *energy_mj) {
    if (unsupported("FAKE_NVML_ENERGY")) return NOT_SUPPORTED;
    device->readings++;
    if (device->readings == number("FAKE_NVML_FAIL_AT", 0)) return GPU_IS_LOST;
    if (device->readings == number("FAKE_NVML_RESET_AT", 0)) device->offset = device->readings;
    int base = device->offset ? 0 : 500000;
    *energy_mj = base + 1000ULL * (device->index + 1) * (device->readings - device->offset);
    return SUCCESS;
}

API int nvmlDeviceGetPowerUsage(Device *device, unsigned *power_mw) {
    if (unsupported("FAKE_NVML_POWER")) return NOT_SUPPORTED;
    *power_mw = 100000U * (device->index + 1);
    return SUCCESS;
}

API int nvmlDeviceGetPowerManagementLimit(Device *device, unsigned *limit_mw) {
    if (unsupported("FAKE_NVML_LIMITS")) return NOT_SUPPORTED;
    *limit_mw = (unsigned)numbered("FAKE_NVML_LIMIT_MW", device->index, 250000);
    return SUCCESS;
}

API int nvmlDeviceGetPowerManagementDefaultLimit(Device *device, unsigned *limit_mw) {
    (void)device;
    if (unsupported("FAKE_NVML_LIMITS")) return NOT_SUPPORTED;
    *limit_mw = 300000;
    return SUCCESS;
}

API int nvmlDeviceGetPowerManagementLimitConstraints(Device *device, unsigned *lowest_mw, unsigned *highest_mw) {
    (void)device;
    if (unsupported("FAKE_NVML_LIMITS")) return NOT_SUPPORTED;
    *lowest_mw = 100000;
    *highest_mw = 300000;
    return SUCCESS;
}
