/* frame.h - what goes over a connection once both ends are known: headers of 48 bytes, those of data with bytes behind.
 *
 * Messages of one channel are counted from 0, in each direction; so are the receives posted for them. A message is cut
 * into frames of DATA, which may take different connections. Small messages go at once, as far as the receiver's credit
 * lasts. A large one waits for READY, which says that memory is there for it; OFFER says that one waits. */
#ifndef TW_COMM_TCP_FRAME_H
#define TW_COMM_TCP_FRAME_H

#include <stdint.h>

enum { TCP_FRAME_BYTES = 48, TCP_SEGMENT = 128 * 1024 /* bytes behind a header, at most: what others wait for */ };

typedef enum tcp_frame_kind {
    TCP_DATA = 1, /* `length` bytes at `offset` of message `seq`, which has `size` bytes; it has credit */
    TCP_GRANTED,  /* the same of a message that waited for READY */
    TCP_OFFER,    /* message `seq` has `size` bytes, and waits */
    TCP_READY,    /* message `seq` may come if it has `size` bytes at most; if it has more it never will */
    TCP_CREDIT,   /* `size` more bytes of small messages may be sent on this channel */
    TCP_BYE,      /* nothing more will come; `size`: because of which rank, and 1; 0: of none; `seq`: 1 where that one
                   * was waited for in vain, and 0 where it had gone */
    TCP_ASK,      /* say that you are there */
    TCP_HERE,     /* the answer, of the thread that moves bytes, whatever the program does; `size`: a tcp_doing */
    TCP_KINDS
} tcp_frame_kind;

/* What a program does, as its rank says. */
typedef enum tcp_doing {
    TCP_UNTOLD, /* by an older release */
    TCP_WAITS,  /* for some rank's message */
    TCP_IS_BUSY
} tcp_doing;

typedef struct tcp_frame {
    tcp_frame_kind kind;
    uint32_t channel;
    uint32_t check; /* the message's word */
    uint32_t length;
    uint64_t seq, size, offset;
} tcp_frame;

void tcp_frame_write(const tcp_frame *frame, unsigned char bytes[TCP_FRAME_BYTES]);
/* 0 when the bytes are no frame that anybody writes. */
int tcp_frame_read(const unsigned char bytes[TCP_FRAME_BYTES], tcp_frame *frame);

#endif
