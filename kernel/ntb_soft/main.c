// SPDX-License-Identifier: GPL-2.0
/* ntb_soft: NTB bridges of software, for stock Linux and its stock clients. */
#include "bridge.h"

#include <linux/log2.h>
#include <linux/module.h>
#include <linux/sizes.h>

static unsigned long base;
module_param(base, ulong, 0444);
MODULE_PARM_DESC(base, "start of the memory of a pair's windows, which the kernel must have been told to leave alone (memmap=)");

static uint windows = 2;
module_param(windows, uint, 0444);
MODULE_PARM_DESC(windows, "memory windows of each bridge (2; at most 8)");

static ulong window_len = SZ_4M;
module_param(window_len, ulong, 0444);
MODULE_PARM_DESC(window_len, "length of each window, bytes, a power of two (4 MB)");

static uint scratchpads = 16;
module_param(scratchpads, uint, 0444);
MODULE_PARM_DESC(scratchpads, "scratchpads of each bridge (16; at most 128)");

static uint doorbells = 16;
module_param(doorbells, uint, 0444);
MODULE_PARM_DESC(doorbells, "doorbell bits of each bridge (16; at most 32)");

static uint messages;
module_param(messages, uint, 0444);
MODULE_PARM_DESC(messages, "message registers of each bridge of a pair (0; at most 8)");

static bool outbound_translation;
module_param(outbound_translation, bool, 0444);
MODULE_PARM_DESC(outbound_translation, "of a pair: a bridge translates the windows that it stores through, not those of its own memory (0)");

static uint peers = 1;
module_param(peers, uint, 0444);
MODULE_PARM_DESC(peers, "peers of each bridge of a pair: one bridge more, each joined with each other (1; at most 3)");

static uint poll_us = 200;
module_param(poll_us, uint, 0444);
MODULE_PARM_DESC(poll_us, "between virtual machines without interrupts: how often an end looks for news, us (200)");

static uint alive_ms = 1000;
module_param(alive_ms, uint, 0444);
MODULE_PARM_DESC(alive_ms, "between virtual machines: how long an end may be silent before the link goes down, ms (1000)");

static ulong xlat_align;
module_param(xlat_align, ulong, 0444);
MODULE_PARM_DESC(xlat_align, "of a pair: memory is given out a page before a window, and translated if aligned to this, bytes, a power of two from 2 pages to window_len (0: aligned memory)");

static ulong said_align;
module_param(said_align, ulong, 0444);
MODULE_PARM_DESC(said_align, "what clients are told of xlat_align, as drivers do that say less than they want, bytes, a power of two (0: the truth)");

static uint late_us;
module_param(late_us, uint, 0444);
MODULE_PARM_DESC(late_us, "of a pair: a store lands up to so long after it was made, us, 100 to 100000; a window reads all ones while the link is down (0: at once)");

static uint flap_ms;
module_param(flap_ms, uint, 0444);
MODULE_PARM_DESC(flap_ms, "the link goes down by itself after so long, and up again, ms, at least 300 (0: never)");

static uint flaps = 10;
module_param(flaps, uint, 0444);
MODULE_PARM_DESC(flaps, "how often flap_ms takes the link down (10)");

/* Whether bridges of this kind can be had. */
static bool kind_fits(void)
{
	if (messages > SOFT_MESSAGES || !peers || peers > SOFT_PEERS) {
		pr_err("ntb_soft: up to %d message registers, 1 to %d peers\n", SOFT_MESSAGES, SOFT_PEERS);
		return false;
	}
	if (!base && (messages || outbound_translation || peers > 1)) {
		pr_err("ntb_soft: messages, outbound_translation and peers are of bridges in one kernel (base)\n");
		return false;
	}
	if (outbound_translation && !messages && !scratchpads) {
		pr_err("ntb_soft: outbound_translation needs messages or scratchpads, to tell addresses by\n");
		return false;
	}
	if (late_us && peers > 1) {
		pr_err("ntb_soft: stores land late (late_us) between two ends only\n");
		return false;
	}
	if (windows < peers) {
		pr_err("ntb_soft: a window for each of the peers, at least\n");
		return false;
	}
	return true;
}

/* Whether the parameters that make a bridge hard on its clients can be had. */
static bool hardships_fit(void)
{
	if (xlat_align && (!is_power_of_2(xlat_align) || xlat_align < 2 * PAGE_SIZE || xlat_align > window_len)) {
		pr_err("ntb_soft: xlat_align is a power of two from 2 pages to window_len\n");
		return false;
	}
	if (said_align && (!is_power_of_2(said_align) || said_align >= xlat_align)) {
		pr_err("ntb_soft: said_align is a power of two less than xlat_align\n");
		return false;
	}
	if (late_us && (late_us < 100 || late_us > 100000 || !base)) {
		pr_err("ntb_soft: late_us is 100 to 100000, and of a pair (base)\n");
		return false;
	}
	if (flap_ms && flap_ms <= SOFT_TRAINING + 99) {
		pr_err("ntb_soft: flap_ms is at least %d: a link trains for %d ms\n", SOFT_TRAINING + 100, SOFT_TRAINING);
		return false;
	}
	return true;
}

static int __init soft_init(void)
{
	int error;
	struct soft_shape shape = {
		.windows = windows,
		.window_len = window_len,
		.pads = scratchpads,
		.doorbells = doorbells,
		.messages = messages,
		.peers = peers,
		.outbound = outbound_translation,
		.xlat_align = xlat_align,
		.said_align = said_align,
		.late_us = late_us,
		.flap_ms = flap_ms,
		.flaps = flaps,
	};

	if (!windows || windows > SOFT_WINDOWS || scratchpads > SOFT_PADS || !doorbells || doorbells > SOFT_DOORBELLS ||
	    window_len < PAGE_SIZE || !is_power_of_2(window_len)) {
		pr_err("ntb_soft: 1 to %d windows of a power of two of bytes, up to %d scratchpads, 1 to %d doorbells\n",
		       SOFT_WINDOWS, SOFT_PADS, SOFT_DOORBELLS);
		return -EINVAL;
	}
	if (!poll_us || !alive_ms) {
		pr_err("ntb_soft: poll_us and alive_ms are at least 1\n");
		return -EINVAL;
	}
	if (!kind_fits() || !hardships_fit())
		return -EINVAL;
	error = base ? soft_pair_start(&shape, base) : 0;
	if (error)
		return error;
	error = soft_ivshmem_start(&shape, poll_us, alive_ms);
	if (error)
		soft_pair_stop();
	return error;
}
module_init(soft_init);

static void __exit soft_exit(void)
{
	soft_ivshmem_stop();
	soft_pair_stop();
}
module_exit(soft_exit);

MODULE_DESCRIPTION("Software NTB bridges");
MODULE_AUTHOR("Crosslane");
MODULE_LICENSE("GPL");
