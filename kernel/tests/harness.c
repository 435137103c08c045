// SPDX-License-Identifier: GPL-2.0
#include "harness.h"

const char *test;
int failures;
jmp_buf failed;
int a = -1, b = -1;
char device_a[32] = "/dev/crosslane0", device_b[32] = "/dev/crosslane1";

void choose_devices(void)
{
	const char *ends = getenv("ENDS");
	int first, second;

	if (!ends || sscanf(ends, "%d %d", &first, &second) != 2)
		return;
	snprintf(device_a, sizeof(device_a), "/dev/crosslane%d", first);
	snprintf(device_b, sizeof(device_b), "/dev/crosslane%d", second);
}

int open_device(const char *name)
{
	return open(name, O_RDWR | O_CLOEXEC);
}

/* The next event of a port; its kind 0 if there is none within `ms`. */
struct crosslane_ntb_event event_within(int port, int ms)
{
	struct pollfd readable = { .fd = port, .events = POLLIN };
	struct crosslane_ntb_event event = { 0 };

	if (poll(&readable, 1, ms) == 1 && read(port, &event, sizeof(event)) != sizeof(event))
		event.kind = 0;
	return event;
}

struct crosslane_ntb_event event(int port)
{
	return event_within(port, 20000);
}

int link_port(int port, uint32_t on)
{
	return ioctl(port, CROSSLANE_NTB_LINK, &on);
}

int translate(int port, uint32_t window, uint64_t len)
{
	struct crosslane_ntb_translate to = { .window = window, .len = len };

	return ioctl(port, CROSSLANE_NTB_TRANSLATE, &to);
}

int carve(int port, uint32_t side, uint64_t offset, uint64_t len)
{
	struct crosslane_ntb_range range = { .side = side, .offset = offset, .len = len };

	return ioctl(port, CROSSLANE_NTB_CARVE, &range);
}

int take_back(int port, uint32_t side, uint64_t offset, uint64_t len)
{
	struct crosslane_ntb_range range = { .side = side, .offset = offset, .len = len };

	return ioctl(port, CROSSLANE_NTB_TAKE_BACK, &range);
}

volatile uint64_t *map(int segment, uint64_t len)
{
	return mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, segment, 0);
}

/* Opens both ends, brings the link up and gives each end's window 0 memory. */
void up(void)
{
	a = open_device(device_a);
	b = open_device(device_b);
	CHECK(a >= 0 && b >= 0);
	CHECK(!translate(a, 0, WINDOW) && !translate(b, 0, WINDOW));
	CHECK(!link_port(a, 1) && !link_port(b, 1));
	CHECK(event(a).kind == CROSSLANE_NTB_LINK_UP && event(b).kind == CROSSLANE_NTB_LINK_UP);
}

void down(void)
{
	close(a);
	close(b);
	a = b = -1;
}


struct views carve_both(uint64_t offset, uint64_t len)
{
	struct views views = {
		.out_fd = carve(a, CROSSLANE_NTB_OUTBOUND, offset, len),
		.in_fd = carve(b, CROSSLANE_NTB_INBOUND, offset, len),
	};

	CHECK(views.out_fd >= 0 && views.in_fd >= 0);
	views.out = map(views.out_fd, len);
	views.in = map(views.in_fd, len);
	CHECK(views.out != MAP_FAILED && views.in != MAP_FAILED);
	return views;
}
