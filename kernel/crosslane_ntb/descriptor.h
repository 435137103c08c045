/* SPDX-License-Identifier: GPL-2.0 */
#ifndef CROSSLANE_DESCRIPTOR_H
#define CROSSLANE_DESCRIPTOR_H

#include <linux/fs.h>

/*
 * Descriptors that programs get from each other and can tell from all others: what statfs() says of them
 * (CROSSLANE_NTB_SEGMENT_MAGIC) is said of nothing that anybody but this module can make.
 */
int descriptor_start(void);
void descriptor_stop(void);

/* An inode of its own; an error pointer if there is no memory. */
struct inode *descriptor_inode(void);
/*
 * A new descriptor in this process, close-on-exec, of `inode`, or of one that all share if it is NULL. `flags` say whether it may be read
 * and written, `data` is the file's private data. The file keeps the module of `operations`.
 */
int descriptor_new(struct inode *inode, const struct file_operations *operations, void *data, int flags);

#endif
