// SPDX-License-Identifier: GPL-2.0
#include "descriptor.h"

#include "crosslane_ntb.h"

#include <linux/file.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/pseudo_fs.h>

static struct vfsmount *mounted;
static struct inode *common;

static int init_fs(struct fs_context *context)
{
	return init_pseudo(context, CROSSLANE_NTB_SEGMENT_MAGIC) ? 0 : -ENOMEM;
}

static struct file_system_type file_system = {
	/* No owner: its mount lives as long as the module, and must not keep it. */
	.name = "crosslane",
	.init_fs_context = init_fs,
	.kill_sb = kill_anon_super,
};

int descriptor_start(void)
{
	/* Not registered: nobody can mount it. */
	mounted = kern_mount(&file_system);
	if (IS_ERR(mounted))
		return PTR_ERR(mounted);
	common = descriptor_inode();
	if (!IS_ERR(common))
		return 0;
	kern_unmount(mounted);
	return PTR_ERR(common);
}

void descriptor_stop(void)
{
	iput(common);
	kern_unmount(mounted);
}

struct inode *descriptor_inode(void)
{
	return alloc_anon_inode(mounted->mnt_sb);
}

int descriptor_new(struct inode *inode, const struct file_operations *operations, void *data, int flags)
{
	struct file *file;
	int descriptor;

	descriptor = get_unused_fd_flags(O_CLOEXEC);
	if (descriptor < 0)
		return descriptor;
	if (!inode)
		inode = common;
	ihold(inode);
	/* The file's end gives it back. */
	__module_get(operations->owner);
	file = alloc_file_pseudo(inode, mounted, "crosslane", flags, operations);
	if (IS_ERR(file)) {
		module_put(operations->owner);
		iput(inode);
		put_unused_fd(descriptor);
		return PTR_ERR(file);
	}
	file->private_data = data;
	fd_install(descriptor, file);
	return descriptor;
}
