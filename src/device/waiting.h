// How OpenMP's threads wait for each other. libgomp's spin for milliseconds at every barrier, which
// on a machine that others use too takes the processor from the very thread that is waited for: a
// step of a small model was 25 times slower. How long they spin is read from the environment when
// libgomp is loaded, before anything of ours runs.
#pragma once

namespace adjoint {

// Starts the program anew, once, with short spinning; does nothing where the environment already
// says how to wait (OMP_WAIT_POLICY or GOMP_SPINCOUNT), nor where the program cannot be started
// anew. To be called before the program does anything: only its environment is kept.
void restart_with_short_waits(char** argv);

}  // namespace adjoint
