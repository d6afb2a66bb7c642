/* cores.h - the processors that this process may use. */
#ifndef TRAINER_CORES_H
#define TRAINER_CORES_H

int core_count(void);

#endif
