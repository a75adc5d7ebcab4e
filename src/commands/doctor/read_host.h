#pragma once
// Reads the state of this host for judge.h.

#include <filesystem>
#include <optional>

#include "commands/doctor/judge.h"

namespace trainer::doctor {

Cpus read_cpus();
Memory read_memory();
std::optional<uint64_t> read_shared_memory_size();
std::optional<uint64_t> read_open_files_limit();
std::optional<uint64_t> read_processes_limit();  // of the user and of the cgroups
std::optional<uint64_t> read_locked_memory_limit();
bool has_infiniband();
Launch read_launch();
// Queries the name server, which may take long.
std::vector<std::string> read_addresses(const std::string& host);
Network read_network();
// Uses the GPUs. To be called before any other use of LibTorch.
Gpus read_gpus();
// Writes, locks, links and removes a file in `folder` or, if that does not exist, in the nearest folder above it that does.
Disk read_disk(const std::filesystem::path& folder);
// Writes and reads an image in memory. Returns why that is not possible; empty: it is possible.
std::string try_images();

}  // namespace trainer::doctor
