/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The properties of the state `walk` that are in walkfd.c, and what both files
 * use. Each function returns -1 if this machine does not allow the property. */
#ifndef WALK_H
#define WALK_H

const char *odd(unsigned int n);
char *fresh(unsigned int n);

int walk_file(unsigned int n);
int walk_memory(unsigned int n);
int walk_pipe(unsigned int n);
int walk_socket(unsigned int n);
int walk_unix(unsigned int n);
int walk_event(unsigned int n);
int walk_lock(unsigned int n);
int walk_map(unsigned int n);
int walk_descriptor(unsigned int n);

#endif
