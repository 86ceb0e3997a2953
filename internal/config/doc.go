// Package config is the configuration of a target, as in its file: listeners, subsystems with
// their namespaces and hosts, limits, observation. The flags of `nvmetgt serve` are a short
// form of the same Config.
//
// Parse reads YAML strictly: an unknown key, a wrong type or a value out of bounds is a
// *FieldError that names the key, its line and what it must be. Nothing is opened here: whether
// a volume can be opened, or an address listened on, shows only when the target does so.
//
// FromNVMeTCLI reads the JSON that Linux's nvmetcli saves.
//
// A Config is plain data; Clone it before changing it if others read it.
package config
