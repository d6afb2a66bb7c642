/* children.h - sockets that a forked child does not have. With a copy in a child that lives on, a process that was
 * killed would keep its port, and its peers would take it for alive. */
#ifndef TW_COMM_TCP_CHILDREN_H
#define TW_COMM_TCP_CHILDREN_H

/* From here on, until tcp_close. Without memory for that it goes without. */
void tcp_keep_from_children(int fd);
/* Also what is not kept from them. */
void tcp_close(int fd);

#endif
