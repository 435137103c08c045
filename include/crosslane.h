/* Crosslane: what a program that knows of streams may ask of, and choose for, its sockets.
 *
 * All of it works by getsockopt(2) and setsockopt(2) with level SOL_CROSSLANE in a program that runs under the library
 * (`crosslane run`). Without the library, and on sockets that are not TCP, the kernel refuses the level (ENOPROTOOPT,
 * EOPNOTSUPP): then there is nothing to choose. */
#ifndef CROSSLANE_H
#define CROSSLANE_H

#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The level of the options below. */
#define SOL_CROSSLANE 0x584c

/* int, get only: what the socket is, one of enum xl_state. Of every TCP socket. */
#define XL_STATE 1
/* int: how data is sent, one of enum xl_transfer. Before connect(2) and on listeners it is kept for the stream that is
 * made; streams that accept(2) returns have their listener's. It counts for this end's sends, and goes before rules of
 * the configuration. On a connection that is plain TCP: ENOPROTOOPT. */
#define XL_TRANSFER 2
/* int, 0 or 1: the daemon's engine copies, not this program's threads. Otherwise as XL_TRANSFER. */
#define XL_OFFLOAD 3
/* struct xl_stats, get only: what the stream has moved, and how. Copies as much as fits the given length, and stores the
 * length copied. On sockets that are no streams: ENOPROTOOPT. */
#define XL_STATS 4

enum xl_state {
    XL_STATE_TCP = 0,      /* not connected yet, or the kernel's TCP */
    XL_STATE_STREAM = 1,   /* a stream */
    XL_STATE_LISTENER = 2, /* a listener whose connections may become streams */
};

enum xl_transfer {
    XL_TRANSFER_AUTO = 0,        /* whatever is best for each send */
    XL_TRANSFER_BCOPY = 1,       /* copied in by the sender, copied out by the receiver */
    XL_TRANSFER_READ_ZCOPY = 2,  /* taken out of the sender's registered buffer; other memory goes by Bcopy */
    XL_TRANSFER_WRITE_ZCOPY = 3, /* put into the receiver's registered buffer, likewise */
};

/* Counters of one end of a stream since it began. Releases to come add members at the end and keep those that are
 * there; `size` tells how many bytes the library knows. */
struct xl_stats {
    uint64_t size;            /* bytes of the library's structure */
    uint64_t tx_bytes;        /* payload sent: the sum of the next four */
    uint64_t tx_bcopy;        /* by Bcopy */
    uint64_t tx_read_zcopy;   /* by Read Zcopy */
    uint64_t tx_write_zcopy;  /* by Write Zcopy */
    uint64_t tx_transaction;  /* by Transactions */
    uint64_t tx_copied;       /* payload that this end copied to send it */
    uint64_t tx_records;      /* records with payload */
    uint64_t tx_control;      /* messages without payload of this end: announcements */
    uint64_t tx_cancelled;    /* announcements of this end that were taken back or refused */
    uint64_t tx_offloaded;    /* payload that the daemon's engine moved */
    uint64_t rx_bytes;        /* payload received: the sum of the next four */
    uint64_t rx_bcopy;
    uint64_t rx_read_zcopy;
    uint64_t rx_write_zcopy;
    uint64_t rx_transaction;
    uint64_t rx_copied;
    uint64_t rx_records;
    uint64_t rx_control;      /* messages without payload of this end: credit, completions */
    uint64_t rx_cancelled;
    uint64_t rx_offloaded;
    uint64_t wakes;           /* waiters of the far side that this end woke */
    uint64_t sleeps;          /* times that a thread slept for this end */
};

/* Functions of the library. Weak: without the library they are NULL, which a program must look at before it calls them. */
#define XL_ALLOC_OPEN 1 /* for xl_alloc: far ends may store there, at any time from the first receive into it on */

/* Memory of at least `len` bytes, whole pages, zeroed. Sends from it that may wait need no copy of the sender's (by
 * XL_TRANSFER_AUTO where that is faster). With XL_ALLOC_OPEN: receives into it under XL_TRANSFER_WRITE_ZCOPY, and answers of
 * xl_transact, need no copy of the receiver's. Where the daemon's engine copies (XL_OFFLOAD) it maps such memory and is several
 * times as fast. NULL and errno (EINVAL, EMFILE, ENOMEM, ...) if there is none. */
extern void *xl_alloc(size_t len, unsigned flags) __attribute__((weak));
/* Gives it back. 0, or -1 and EINVAL if xl_alloc did not give it. */
extern int xl_free(void *memory) __attribute__((weak));
/* Sends `len` bytes and receives what comes next, up to `room` bytes, as send(2) and recv(2) one after the other. */
extern ssize_t xl_transact(int fd, const void *request, size_t len, void *answer, size_t room)
    __attribute__((weak));

#ifdef __cplusplus
}
#endif

#endif
