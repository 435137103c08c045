/* A stand-in for CUDA's driver, for tests: one GPU whose memory is this process's. Says at the end, in the file FAKE_CUDA_SAYS, what was not given back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int contexts, device_blocks, host_blocks;

__attribute__((destructor)) static void say(void)
{
	const char *name = getenv("FAKE_CUDA_SAYS");
	FILE *file = name ? fopen(name, "w") : NULL;

	if (!file)
		return;
	fprintf(file, "left: %d contexts, %d of the device, %d of the host\n", contexts, device_blocks, host_blocks);
	fclose(file);
}

static int fails(const char *name)
{
	const char *which = getenv("FAKE_CUDA_FAILS");

	return which && !strcmp(which, name) ? 2 : 0;
}

int cuInit(unsigned int flags)
{
	return getenv("FAKE_CUDA_NO_DEVICE") ? 100 : (int)flags;
}

int cuDeviceGetCount(int *count)
{
	*count = 1;
	return 0;
}

int cuDeviceGet(int *device, int number)
{
	*device = number + 7;
	return 0;
}

int cuDeviceGetName(char *name, int len, int device)
{
	snprintf(name, (size_t)len, "Fake GPU %d", device);
	return 0;
}

int cuDeviceGetPCIBusId(char *name, int len, int device)
{
	(void)device;
	snprintf(name, (size_t)len, "0000:0A:00.0");
	return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
	(void)device;
	contexts++;
	*context = &contexts;
	return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
	(void)device;
	contexts--;
	return 0;
}

int cuCtxSetCurrent(void *context)
{
	return context == &contexts ? 0 : 1;
}

int cuMemAlloc_v2(unsigned long long *block, size_t len)
{
	*block = (unsigned long long)(size_t)malloc(len);
	device_blocks++;
	return 0;
}

int cuMemFree_v2(unsigned long long block)
{
	free((void *)(size_t)block);
	device_blocks--;
	return 0;
}

int cuMemAllocHost_v2(void **block, size_t len)
{
	if (fails("cuMemAllocHost_v2"))
		return 2;
	*block = malloc(len);
	host_blocks++;
	return 0;
}

int cuMemFreeHost(void *block)
{
	free(block);
	host_blocks--;
	return 0;
}

int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t len)
{
	memcpy((void *)(size_t)to, from, len);
	return 0;
}

int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t len)
{
	if (fails("cuMemcpyDtoH_v2"))
		return 2;
	memcpy(to, (void *)(size_t)from, len);
	return 0;
}
