#pragma once
// The program as a function, for a program with components of its own (registry.h).

namespace trainer {

// The commands of `trainer`, with the components that have been registered. Returns the exit code; prints errors itself. Call it once, at
// the end of main(), before threads are started: it installs handlers of signals, and with several processes it starts this program again
// (`launch`). Collective where the command is.
int main(int argc, char** argv);

}  // namespace trainer
