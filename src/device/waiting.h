// How OpenMP's threads wait for each other. libgomp's threads spin for milliseconds at every
// barrier. On a machine with other users that takes the processor from the very thread that they
// wait for: a step of a small model was 25 times slower. libgomp reads how long to spin from the
// environment when it is loaded, before any of our code runs.
#pragma once

namespace adjoint {

// Restarts the program, once, with short spinning. Does nothing if the environment already says how
// to wait (OMP_WAIT_POLICY or GOMP_SPINCOUNT), or if the program cannot be restarted. To be called
// first: only arguments and environment are kept.
void restart_with_short_waits(char** argv);

}  // namespace adjoint
