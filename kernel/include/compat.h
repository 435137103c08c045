/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between the kernels that the modules are built for, from 6.1 on: by the names of the newest one, with the version that
 * changed it. No other file asks for the kernel's version.
 */
#ifndef CROSSLANE_COMPAT_H
#define CROSSLANE_COMPAT_H

#include <linux/eventfd.h>
#include <linux/hrtimer.h>
#include <linux/mm.h>
#include <linux/timer.h>
#include <linux/version.h>

/* 6.2 has timers that cannot be started again once they are shut down. */
static inline void compat_timer_shutdown_sync(struct timer_list *timer)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
	timer_shutdown_sync(timer);
#else
	del_timer_sync(timer);
#endif
}

/* 6.3 made vm_flags read-only but for calls that have mmap_lock checked. */
static inline void compat_vm_flags_mod(struct vm_area_struct *vma, vm_flags_t set, vm_flags_t clear)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_mod(vma, set, clear);
#else
	vma->vm_flags = (vma->vm_flags | set) & ~clear;
#endif
}

/* 6.8 has eventfd_signal() count one. */
static inline void compat_eventfd_signal(struct eventfd_ctx *context)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
	eventfd_signal(context);
#else
	eventfd_signal(context, 1);
#endif
}

/* 6.13 sets the function together with the rest; 6.15 took hrtimer_init() away. */
static inline void compat_hrtimer_setup(struct hrtimer *timer, enum hrtimer_restart (*function)(struct hrtimer *),
					clockid_t clock, enum hrtimer_mode mode)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup(timer, function, clock, mode);
#else
	hrtimer_init(timer, clock, mode);
	timer->function = function;
#endif
}

#endif
