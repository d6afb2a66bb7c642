/* machine_memory.h - how much memory this machine has. Here and not in a layer, because several layers ask. */
#ifndef TRAINER_MACHINE_MEMORY_H
#define TRAINER_MACHINE_MEMORY_H

#include <unistd.h>

/* In bytes. */
static inline double machine_memory(void)
{
    return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

#endif
