/* interrupt.h - SIGINT and SIGTERM ask a run to stop after the step it is in. */
#ifndef TRAINER_INTERRUPT_H
#define TRAINER_INTERRUPT_H

/* From here on the first signal only asks; one that comes two seconds later or more ends the process
 * at once. */
void interrupt_listen(void);
int interrupt_asked(void);

#endif
