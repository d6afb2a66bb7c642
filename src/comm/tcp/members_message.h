/* members_message.h - what members of a group tell each other, as bytes. */
#ifndef TW_COMM_TCP_MEMBERS_MESSAGE_H
#define TW_COMM_TCP_MEMBERS_MESSAGE_H

#include "council.h"

enum { TCP_SUBJECT = 1 << 20, TCP_WORD = 2 * TCP_SUBJECT /* bytes of a message at most */ };

/* The text is told with it. NULL: no memory. The caller frees it. */
unsigned char *tcp_word_write(const council_message *message, const char *text, size_t *size);
/* 0: nobody writes that: a name or a door is no address, a number is out of range. *text is in the bytes, which end
 * with a 0 behind the `size`. */
int tcp_word_read(const unsigned char *bytes, size_t size, council_message *message, const char **text);

#endif
