// SPDX-License-Identifier: GPL-2.0
/*
 * Ranges of PCI windows and of inbound memory as descriptors, which can be taken back.
 *
 * Each segment has an inode of its own, so that unmap_mapping_range() finds the mappings of this range and no others. Pages are
 * mapped when they are touched, as bare frames: nobody can pin them (O_DIRECT, vmsplice, RDMA), so what was taken back is not
 * written by anybody any more. Lock order: mmap_lock, segment->lock.
 */
#include "segment.h"

#include "compat.h"
#include "copies.h"
#include "crosslane_ntb.h"
#include "descriptor.h"
#include "own_pages.h"

#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

/* Copies of one range that may be under way: a program that fills its own does not keep others from the engine for long. */
#define SEGMENT_COPIES 8

static unsigned long pages(struct segment *segment)
{
	return segment->len >> PAGE_SHIFT;
}

static void forget_kept(struct segment *segment)
{
	unsigned long i;

	if (!segment->kept)
		return;
	for (i = 0; i < pages(segment); i++)
		if (segment->kept[i])
			__free_page(segment->kept[i]);
	kvfree(segment->kept);
}

static void segment_free(struct kref *users)
{
	struct segment *segment = container_of(users, struct segment, users);

	forget_kept(segment);
	if (segment->inode)
		iput(segment->inode);
	kfree(segment);
}

void segment_put(struct segment *segment)
{
	kref_put(&segment->users, segment_free);
}

static vm_fault_t segment_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct segment *segment = vma->vm_file->private_data;
	pgprot_t prot = vma->vm_page_prot;
	unsigned long frame;
	vm_fault_t result;

	/* mmap() and VM_DONTEXPAND keep a mapping inside. */
	if (WARN_ON_ONCE(vmf->pgoff >= pages(segment)))
		return VM_FAULT_SIGBUS;
	down_read(&segment->lock);
	if (segment->live) {
		frame = segment->frame(segment->memory, vmf->pgoff);
		if (segment->combining)
			prot = pgprot_writecombine(prot);
	} else {
		frame = own_pages_frame(vma->vm_private_data, vmf->pgoff,
					segment->kept ? segment->kept[vmf->pgoff] : NULL);
	}
	result = frame ? vmf_insert_pfn_prot(vma, vmf->address, frame, prot) : VM_FAULT_OOM;
	up_read(&segment->lock);
	return result;
}

static void segment_map_open(struct vm_area_struct *vma)
{
	own_pages_get(vma->vm_private_data);
}

static void segment_map_close(struct vm_area_struct *vma)
{
	own_pages_put(vma->vm_private_data);
}

static const struct vm_operations_struct segment_map_ops = {
	.open = segment_map_open,
	.close = segment_map_close,
	.fault = segment_fault,
};

static int segment_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct segment *segment = file->private_data;
	unsigned long count = pages(segment);

	if (!(vma->vm_flags & VM_SHARED) || vma->vm_flags & VM_EXEC)
		return -EINVAL;
	if (vma->vm_pgoff > count || vma_pages(vma) > count - vma->vm_pgoff)
		return -ENXIO;
	vma->vm_private_data = own_pages_new();
	if (!vma->vm_private_data)
		return -ENOMEM;
	vma->vm_ops = &segment_map_ops;
	compat_vm_flags_mod(vma, VM_PFNMAP | VM_IO | VM_DONTEXPAND | VM_DONTDUMP, VM_MAYEXEC);
	return 0;
}

static bool copy_fits(struct segment *segment, const struct crosslane_ntb_copy *request)
{
	return request->len && request->len <= COPY_MAX && request->len <= segment->len &&
	       request->offset <= segment->len - request->len;
}

static int begin_copy(struct segment *segment, struct copy *copy, u64 offset)
{
	int error;

	if (!segment->live)
		return -ENOTCONN;
	if (atomic_inc_return(&segment->copying) > SEGMENT_COPIES) {
		error = -EAGAIN;
	} else {
		/* Until segment_copied(). */
		kref_get(&segment->users);
		error = copy_begin(segment->copies, copy, segment, offset);
		if (error)
			segment_put(segment);
	}
	if (error)
		atomic_dec(&segment->copying);
	return error;
}

static int segment_copy(struct segment *segment, const struct crosslane_ntb_copy *request)
{
	struct copy *copy;
	int error;

	if (!segment->copies)
		return -EOPNOTSUPP;
	if (!copy_fits(segment, request))
		return -EINVAL;
	/* Waits for pages of the process, whose faults may take the lock. */
	copy = copy_new(request, segment->side == CROSSLANE_NTB_OUTBOUND);
	if (IS_ERR(copy))
		return PTR_ERR(copy);
	down_read(&segment->lock);
	error = begin_copy(segment, copy, request->offset);
	up_read(&segment->lock);
	if (error)
		copy_free(copy);
	return error;
}

unsigned long segment_frame_at(struct segment *segment, unsigned long index)
{
	return segment->frame(segment->memory, index);
}

void segment_copied(struct segment *segment)
{
	atomic_dec(&segment->copying);
	wake_up_all(&segment->copied);
	segment_put(segment);
}

static long segment_ioctl(struct file *file, unsigned int command, unsigned long address)
{
	struct crosslane_ntb_copy request;

	if (command != CROSSLANE_NTB_COPY)
		return -ENOTTY;
	if (copy_from_user(&request, (void __user *)address, sizeof(request)))
		return -EFAULT;
	return segment_copy(file->private_data, &request);
}

static int segment_release(struct inode *inode, struct file *file)
{
	segment_put(file->private_data);
	return 0;
}

static const struct file_operations segment_fops = {
	.owner = THIS_MODULE,
	.mmap = segment_mmap,
	.unlocked_ioctl = segment_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.release = segment_release,
	.llseek = noop_llseek,
};

struct segment *segment_new(const struct crosslane_ntb_range *range, segment_frame frame, void *memory, struct copies *copies)
{
	struct segment *segment = kzalloc(sizeof(*segment), GFP_KERNEL_ACCOUNT);
	struct inode *inode;

	if (!segment)
		return ERR_PTR(-ENOMEM);
	kref_init(&segment->users);
	INIT_LIST_HEAD(&segment->link);
	init_rwsem(&segment->lock);
	segment->window = range->window;
	segment->side = range->side;
	segment->offset = range->offset;
	segment->len = range->len;
	segment->combining = range->side == CROSSLANE_NTB_OUTBOUND;
	segment->frame = frame;
	segment->memory = memory;
	segment->copies = copies;
	init_waitqueue_head(&segment->copied);
	segment->live = true;
	inode = descriptor_inode();
	if (IS_ERR(inode)) {
		segment_put(segment);
		return ERR_CAST(inode);
	}
	segment->inode = inode;
	return segment;
}

int segment_descriptor(struct segment *segment)
{
	int descriptor;

	/* Before others can close it. */
	kref_get(&segment->users);
	descriptor = descriptor_new(segment->inode, &segment_fops, segment, O_RDWR);
	if (descriptor < 0)
		segment_put(segment);
	return descriptor;
}

/* Without memory for a copy its page will be zero: to a reader, as if nothing had arrived. */
static void keep_pages(struct segment *segment)
{
	unsigned long i;

	segment->kept = kvcalloc(pages(segment), sizeof(*segment->kept), GFP_KERNEL);
	for (i = 0; segment->kept && i < pages(segment); i++) {
		segment->kept[i] = alloc_page(GFP_KERNEL | __GFP_NOWARN);
		if (segment->kept[i])
			memcpy(page_address(segment->kept[i]), (u8 *)segment->memory + (i << PAGE_SHIFT), PAGE_SIZE);
	}
}

void segment_end(struct segment *segment, bool keep)
{
	down_write(&segment->lock);
	/* Where only the port knows it, nobody can read the copies. */
	if (segment->live && keep && segment->side == CROSSLANE_NTB_INBOUND && kref_read(&segment->users) > 1)
		keep_pages(segment);
	segment->live = false;
	up_write(&segment->lock);
	/* Whoever was in segment_fault() has inserted its frame before this, whoever comes later gets a page of its own. */
	unmap_mapping_range(segment->inode->i_mapping, 0, 0, 1);
	wait_event(segment->copied, !atomic_read(&segment->copying));
}
