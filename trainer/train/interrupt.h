/* interrupt.h - SIGINT, SIGTERM and SIGHUP (a terminal that is gone) ask a run to stop after the step it is in. So does
 * the end of whoever read what it prints. */
#ifndef TRAINER_INTERRUPT_H
#define TRAINER_INTERRUPT_H

/* From here on the first signal only asks; one that comes two seconds later or more ends the process
 * at once. To be called before there are threads: those that this one starts afterwards never run a handler. */
void interrupt_listen(void);
int interrupt_asked(void);
/* From here on the first signal is answered at once, in one line on stderr: what it leads to, and a second one. */
void interrupt_answers(void);
/* Where there is nothing to save yet: the first signal ends the process with this code. 0: it only asks, as above. */
void interrupt_ends_with(int code);
/* The same wish, from within. */
void interrupt_ask(void);

#endif
