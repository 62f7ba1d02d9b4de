// Speed of the CPU kernels. See --help; benchmarks/cpu_table.py adds the limits of the machine.

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <getopt.h>
#include <stdexcept>

#include "cases.h"
#include "measure.h"

namespace pulsora::bench {
namespace {

constexpr const char *kHelp =
    "Usage: rpucuda_benchmarks [--quick] [--filter TEXT] [--seconds S] [--json FILE]\n"
    "  --quick        512 x 512 with batches of 64 alone\n"
    "  --filter TEXT  only cases whose name contains TEXT\n"
    "  --seconds S    time for each case (0.3)\n"
    "  --json FILE    also write everything there; benchmarks/cpu_table.py adds bounds to it\n"
    "Every case is checked against the plainest code before it is timed. OMP_WAIT_POLICY=passive "
    "is advisable where\n"
    "other processes want the cores.\n";

struct Options {
  bool quick = false;
  std::string filter;
  double seconds = 0.3;
  std::string json;
};

struct Result {
  Case description;
  Timing timing;
};

/// The processor's name from the operating system.
std::string processorName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

/// Mean number of runnable processes over the last minute: timings are reliable if it is below the
/// number of cores.
double loadAverage() {
  double load = 0.0;
  return getloadavg(&load, 1) == 1 ? load : 0.0;
}

Options parse(int argc, char **argv) {
  const option longOptions[] = {
      {"quick", no_argument, nullptr, 'q'},         {"filter", required_argument, nullptr, 'f'},
      {"seconds", required_argument, nullptr, 's'}, {"json", required_argument, nullptr, 'j'},
      {"help", no_argument, nullptr, 'h'},          {nullptr, 0, nullptr, 0}};
  Options options;
  for (int c; (c = getopt_long(argc, argv, "", longOptions, nullptr)) != -1;) {
    switch (c) {
      case 'q':
        options.quick = true;
        break;
      case 'f':
        options.filter = optarg;
        break;
      case 's':
        options.seconds = std::stod(optarg);
        break;
      case 'j':
        options.json = optarg;
        break;
      default:
        std::fputs(kHelp, c == 'h' ? stdout : stderr);
        std::exit(c == 'h' ? 0 : 2);
    }
  }
  return options;
}

void printTable(const Result &r) {
  const Case &c = r.description;
  std::printf("%-24s %-26s %5ld %5ld %-9s %3d %11.1f %10.1f %10.1f %5d\n", c.operation.c_str(),
              c.device.c_str(), static_cast<long>(c.size), static_cast<long>(c.batch),
              isaName(c.isa), c.threads, r.timing.median, r.timing.lowerQuartile,
              r.timing.upperQuartile, r.timing.runs);
  std::fflush(stdout);
}

void writeJson(const std::string &path, const std::vector<Result> &results,
               const std::vector<Memory> &memory, double loadBefore) {
  std::ofstream out(path);
  char date[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
  out << "{\n  \"date\": \"" << date << "\",\n  \"cpu\": \"" << processorName()
      << "\",\n  \"compiler\": \"" << __VERSION__ << "\",\n  \"load_average\": [" << loadBefore
      << ", " << loadAverage() << "],\n  \"memory\": [";
  const char *comma = "\n";
  for (const Memory &m : memory) {
    out << comma << "    {\"what\": \"" << m.what
        << "\", \"bytes_per_weight\": " << m.bytesPerWeight << "}";
    comma = ",\n";
  }
  out << "\n  ],\n  \"unit\": \"us\",\n  \"results\": [";
  comma = "\n";
  for (const Result &r : results) {
    const Case &c = r.description;
    out << comma << "    {\"operation\": \"" << c.operation << "\", \"device\": \"" << c.device
        << "\", \"size\": " << c.size << ", \"batch\": " << c.batch << ", \"isa\": \""
        << isaName(c.isa) << "\", \"threads\": " << c.threads << ", \"median\": " << r.timing.median
        << ", \"lower_quartile\": " << r.timing.lowerQuartile
        << ", \"upper_quartile\": " << r.timing.upperQuartile
        << ", \"fastest\": " << r.timing.fastest << ", \"runs\": " << r.timing.runs << "}";
    comma = ",\n";
  }
  out << "\n  ]\n}\n";
  if (!out) throw std::runtime_error("could not write " + path);
}

int run(const Options &options) {
  const double loadBefore = loadAverage();
  std::printf("%s, load average %.1f\n", processorName().c_str(), loadBefore);
  const std::vector<Memory> memory = memoryOfDevices();
  bool within = true;
  for (const Memory &m : memory) {
    std::printf("  %5.1f bytes per weight: %s%s\n", m.bytesPerWeight, m.what.c_str(),
                m.limit > 0.0 && m.bytesPerWeight > m.limit ? "  ABOVE ITS TARGET" : "");
    within = within && !(m.limit > 0.0 && m.bytesPerWeight > m.limit);
  }
  std::printf("\n%-24s %-26s %5s %5s %-9s %3s %11s %10s %10s %5s\n", "operation", "device", "size",
              "batch", "isa", "thr", "median us", "quartile", "quartile", "runs");
  std::vector<Result> results;
  for (const auto &make : allCases(options.quick)) {
    Case c = make();
    if (c.name().find(options.filter) == std::string::npos) continue;
    c.verify();
    Timing t = measure(options.seconds, c.run);
    for (double *time : {&t.median, &t.lowerQuartile, &t.upperQuartile, &t.fastest})
      *time /= c.perRun;
    c.run = {};  // frees its arrays
    c.verify = {};
    results.push_back({c, t});
    printTable(results.back());
  }
  if (!options.json.empty()) writeJson(options.json, results, memory, loadBefore);
  return within ? 0 : 1;
}

}  // namespace
}  // namespace pulsora::bench

int main(int argc, char **argv) {
  try {
    return pulsora::bench::run(pulsora::bench::parse(argc, argv));
  } catch (const std::exception &error) {
    std::fprintf(stderr, "rpucuda_benchmarks: %s\n", error.what());
    return 1;
  }
}
