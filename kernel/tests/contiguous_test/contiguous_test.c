// SPDX-License-Identifier: GPL-2.0
/* contiguous_test: memory in one piece, as crosslane_ntb gets it, is had and given back when this module is loaded. */
#include "../../crosslane_ntb/contiguous.c"

#include <linux/io.h>
#include <linux/module.h>
#include <linux/sizes.h>

static int __init check(u64 len, u64 align, u64 most)
{
	struct page *pages = contiguous_alloc(len, align, most, NUMA_NO_NODE);
	u64 *words, at, begin;
	int error = 0;

	if (!pages)
		return -ENOMEM;
	begin = page_to_phys(pages);
	if (!IS_ALIGNED(begin, align) || begin + len - 1 > most)
		error = -ERANGE;
	/* It is nobody else's: what is written stays. */
	words = page_address(pages);
	for (at = 0; at < len / sizeof(*words); at++)
		words[at] = at ^ begin;
	for (at = 0; at < len / sizeof(*words); at++)
		if (words[at] != (at ^ begin))
			error = -EIO;
	contiguous_free(pages, len);
	return error;
}

static int __init contiguous_test_init(void)
{
	/* More than there is, and less than can be addressed. */
	if (contiguous_alloc(SZ_1G * 64ULL, PAGE_SIZE, U64_MAX, NUMA_NO_NODE) || contiguous_alloc(SZ_8M, PAGE_SIZE, SZ_4M, NUMA_NO_NODE) ||
	    contiguous_alloc(0, PAGE_SIZE, U64_MAX, NUMA_NO_NODE))
		return -EEXIST;
	return check(SZ_8M, PAGE_SIZE, U64_MAX) ?: check(SZ_64M, SZ_64M, U64_MAX) ?: check(SZ_16M + PAGE_SIZE, SZ_16M, SZ_256M - 1);
}
module_init(contiguous_test_init);

static void __exit contiguous_test_exit(void)
{
}
module_exit(contiguous_test_exit);

MODULE_DESCRIPTION("Tests of memory in one piece");
MODULE_AUTHOR("Crosslane");
MODULE_LICENSE("GPL");
