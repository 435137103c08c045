"""Bandwidth between this host's memory and its first GPU, by CUDA's driver alone, as JSON on standard output.

    measure.py RUNS SECONDS DEVICES     DEVICES: where the kernel describes devices of PCI, /sys/bus/pci/devices

{"none": why} where there is no GPU or no driver; {"failed": why} where the driver refuses something.
"""

import ctypes
import json
import os
import sys
import time

LIBRARY = "libcuda.so.1"
# CUDA_ERROR_NO_DEVICE
NO_DEVICE = 100
SIZES = [64 << 10, 1 << 20, 32 << 20]


class Failed(Exception):
    """A call of the driver failed."""


class Driver:
    """CUDA's driver, with the first GPU's context."""

    def __init__(self):
        self.library = ctypes.CDLL(LIBRARY)
        self.device, self.context = ctypes.c_int(), ctypes.c_void_p()

    def has_device(self):
        status, count = self.library.cuInit(ctypes.c_uint(0)), ctypes.c_int()
        if status == NO_DEVICE:
            return False
        check("cuInit", status)
        self.call("cuDeviceGetCount", ctypes.byref(count))
        return count.value > 0

    def call(self, name, *words):
        check(name, getattr(self.library, name)(*words))

    def begin(self):
        self.call("cuDeviceGet", ctypes.byref(self.device), ctypes.c_int(0))
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.device)
        self.call("cuCtxSetCurrent", self.context)

    def end(self):
        self.call("cuDevicePrimaryCtxRelease_v2", self.device)

    def name(self):
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, ctypes.c_int(len(text)), self.device)
        return text.value.decode(errors="replace")

    def bus(self):
        """Its place as `0000:01:00.0`."""
        text = ctypes.create_string_buffer(64)
        self.call("cuDeviceGetPCIBusId", text, ctypes.c_int(len(text)), self.device)
        return text.value.decode(errors="replace")


def check(name, status):
    if status != 0:
        raise Failed(f"{name}: error {status} of CUDA's driver")


def rate(copy, size, seconds):
    """MB (10^6) a second of `copy`, which moves `size` bytes and returns when they are there."""
    copy()
    begin, done = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - begin) < seconds or done == 0:
        copy()
        done += size
    return done / elapsed / 1e6


def rates(driver, size, pinned, runs, seconds):
    device, host, length = ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_size_t(size)
    driver.call("cuMemAlloc_v2", ctypes.byref(device), length)
    try:
        if pinned:
            driver.call("cuMemAllocHost_v2", ctypes.byref(host), length)
            memory = host
        else:
            memory = ctypes.create_string_buffer(size)
        try:
            ways = {
                "host to device": lambda: driver.call("cuMemcpyHtoD_v2", device, memory, length),
                "device to host": lambda: driver.call("cuMemcpyDtoH_v2", memory, device, length),
            }
            taken = {way: [] for way in ways}
            for _ in range(runs):
                for way, copy in ways.items():
                    taken[way].append(rate(copy, size, seconds))
        finally:
            if pinned:
                driver.call("cuMemFreeHost", host)
    finally:
        driver.call("cuMemFree_v2", device)
    return [{"way": way, "bytes": size, "pinned": pinned, "mb_s": of} for way, of in taken.items()]


def slot(devices, bus):
    """Speed and width of the GPU's slot, read right behind copies: an idle GPU has a slower link."""
    def word(name):
        try:
            with open(os.path.join(devices, bus.lower(), name), encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""
    return {"speed": word("current_link_speed"), "width": word("current_link_width")}


def main(runs, seconds, devices):
    try:
        driver = Driver()
    except OSError:
        return {"none": f"no GPU: there is no {LIBRARY}"}
    try:
        if not driver.has_device():
            return {"none": "no GPU"}
        driver.begin()
        try:
            name, bus = driver.name(), driver.bus()
            taken = [row for size in SIZES for row in rates(driver, size, True, runs, seconds)]
            taken += rates(driver, SIZES[-1], False, runs, seconds)
            return {"name": name, "rates": taken, "slot": slot(devices, bus)}
        finally:
            driver.end()
    except (Failed, AttributeError) as error:
        return {"failed": str(error)}


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])))
