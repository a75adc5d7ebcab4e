#pragma once
// Processes of other runs on this host.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace trainer::world {

// The numbers of the processes with this process's program name that may use a core of this process, without those in `own`, this process
// and launchers (`trainer launch`), in ascending order. Finds what `proc` shows: in a container, its own processes.
std::vector<int64_t> processes_of_other_runs(std::span<const int64_t> own, const std::filesystem::path& proc = "/proc");

// A line for the user about `others`, whose cores the ranks of this host share although each uses `num_threads` threads; empty without any.
std::string describe_other_runs(const std::vector<int64_t>& others, int num_threads);

}  // namespace trainer::world
