/* support.h - what every test of the training loop includes. */
#ifndef TEST_TRAIN_SUPPORT_H
#define TEST_TRAIN_SUPPORT_H

#include "support/assert.h"
#include "support/folder.h"

#include <thinwire/thinwire_plugin.h>

#endif
