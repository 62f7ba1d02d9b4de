#include "runtime/plugin_model.h"

#include <dlfcn.h>
#include <fstream>
#include <memory>
#include <utility>

#include "core/check.h"
#include "runtime/plugin_fields.h"
#include "runtime/private_folder.h"

namespace pulsora {
namespace {

/// Loads a plugin, and returns its function `entry`. `what` names the model.
void *entryOf(const std::string &bytes, const std::string &name, const std::string &what,
              const char *entry) {
  // From a private folder, which may be removed once the library is loaded.
  const PrivateFolder folder;
  const std::string path = (folder.path() / (name + ".so")).string();
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  PULSORA_CHECK(CompileError, out.good(), "the compiled form of ", what, " cannot be written to ",
                path, "; name a folder with space by TMPDIR");
  void *library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const char *problem = library ? nullptr : ::dlerror();
  PULSORA_CHECK(CompileError, library, "the compiled form of ", what, " cannot be loaded (",
                problem ? problem : "no reason given",
                "); if programs in this folder may not be run, name another by TMPDIR");
  void *found = ::dlsym(library, entry);
  PULSORA_CHECK(CompileError, found, "the compiled form of ", what, " has no function ", entry,
                "; it is not one");
  return found;
}

template <class Table, class Common>
const Table &tableOf(const std::string &bytes, const ModelSource &source, Isa isa,
                     const char *entry) {
  void *function = entryOf(bytes, source.name, described(source), entry);
  const Table &table = *reinterpret_cast<const Table *(*)()>(function)();
  PULSORA_CHECK(CompileError,
                table.head.abi == kPluginAbi && table.head.isa == static_cast<uint32_t>(isa) &&
                    table.head.commonSize == sizeof(Common),
                "the compiled form of ", described(source),
                " was made for another version of Pulsora");
  return table;
}

/// Functions of a model that follow from its fields.
template <class Common, class Model>
void takeFields(Model &model, const std::shared_ptr<const PluginFields> &fields) {
  model.fields = fields->infos();
  model.readParams = [fields](const Value &value, const std::string &path) {
    return std::static_pointer_cast<const Common>(fields->read(value, path));
  };
  // Parameters begin with the common ones, so that both have one address.
  model.writeParams = [fields](const Common &params) { return fields->write(&params); };
}

}  // namespace

template <>
const PluginTable &loadPlugin(const std::string &bytes, const ModelSource &source, Isa isa) {
  return tableOf<PluginTable, PulsedParams>(bytes, source, isa, kPluginEntry);
}

template <>
const NoisePluginTable &loadPlugin(const std::string &bytes, const ModelSource &source, Isa isa) {
  return tableOf<NoisePluginTable, NoiseParams>(bytes, source, isa, kNoisePluginEntry);
}

DeviceModel pluginModel(const PluginTable &table, const PluginLauncher &launcher) {
  DeviceModel m;
  m.name = table.head.name;
  m.doc = table.head.doc;
  takeFields<PulsedParams>(m, std::make_shared<const PluginFields>(table.head));
  m.readParams = [&table, read = m.readParams](const Value &value, const std::string &path) {
    const std::shared_ptr<const PulsedParams> params = read(value, path);
    requireUsable(*params, table.granularity(params.get()), table.mergesNoise != 0, table.head.name,
                  path);
    return params;
  };
  table.members(&m.cellMembers, [](void *context, const char *name) {
    static_cast<std::vector<std::string> *>(context)->emplace_back(name);
  });
  m.granularity = [&table](const PulsedParams &params) { return table.granularity(&params); };
  // Only the machine's best instruction set is compiled; all give the same bits.
  m.cpu = [&table](Isa) -> const PulsedKernels & { return *table.kernels; };
  table.setLauncher(&launcher);
  m.cuda = [&table] { return table.gpuKernels; };
  return m;
}

NoiseModel pluginNoiseModel(const NoisePluginTable &table, const PluginLauncher &launcher) {
  NoiseModel m;
  m.name = table.head.name;
  m.doc = table.head.doc;
  takeFields<NoiseParams>(m, std::make_shared<const PluginFields>(table.head));
  m.lastTime = table.lastTime;
  m.readDuration = table.readDuration;
  m.ageOf = table.ageOf;
  m.kernels = &table.kernels;
  table.setLauncher(&launcher);
  return m;
}

}  // namespace pulsora
