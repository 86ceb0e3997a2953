package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/dhchap"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// The JSON that nvmetcli saves mirrors the directories of Linux nvmet's configfs.
type (
	nvmetcli struct {
		Ports      []nvmetPort      `json:"ports"`
		Subsystems []nvmetSubsystem `json:"subsystems"`
		Hosts      []nvmetHost      `json:"hosts"`
	}
	nvmetHost struct {
		NQN     string `json:"nqn"`
		Key     string `json:"dhchap_key"`
		CtrlKey string `json:"dhchap_ctrl_key"`
		Hash    string `json:"dhchap_hash"`
		DHGroup string `json:"dhchap_dhgroup"`
	}
	nvmetAddr struct {
		TrType  string `json:"trtype"`
		TrAddr  string `json:"traddr"`
		TrSvcID string `json:"trsvcid"`
		TReq    string `json:"treq"` // "required", "not required" or "not specified"
		TSAS    string `json:"tsas"` // of TCP: "none" or "tls1.3"
	}
	nvmetReferral struct {
		Name   string    `json:"name"`
		Addr   nvmetAddr `json:"addr"`
		Enable int       `json:"enable"`
	}
	nvmetPort struct {
		Addr      nvmetAddr         `json:"addr"`
		Param     map[string]string `json:"param"`
		ANAGroups []struct {
			GrpID looseID `json:"grpid"`
			ANA   struct {
				State string `json:"state"`
			} `json:"ana"`
		} `json:"ana_groups"`
		Referrals  []nvmetReferral `json:"referrals"`
		Subsystems []string        `json:"subsystems"`
	}
	nvmetSubsystem struct {
		NQN          string            `json:"nqn"`
		AllowedHosts []string          `json:"allowed_hosts"`
		Attr         map[string]string `json:"attr"`
		Namespaces   []nvmetNamespace  `json:"namespaces"`
		Passthru     []nvmetPassthru   `json:"passthru"`
	}
	nvmetPassthru struct {
		Enable int `json:"enable"`
		Device struct {
			Path string `json:"path"`
		} `json:"device"`
	}
	nvmetNamespace struct {
		NSID   uint32 `json:"nsid"`
		Enable int    `json:"enable"`
		Device struct {
			Path  string `json:"path"`
			UUID  string `json:"uuid"`
			NGUID string `json:"nguid"`
		} `json:"device"`
		// Versions of nvmetcli differ in where they put the group.
		ANAGrpID looseID `json:"ana_grpid"`
		ANA      struct {
			GrpID looseID `json:"grpid"`
		} `json:"ana"`
	}
)

// looseID is a number that may be written as a string.
type looseID uint32

// UnmarshalJSON parses a number, with or without quotes.
func (n *looseID) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseUint(strings.Trim(string(b), `"`), 10, 32)
	if err != nil {
		return fmt.Errorf("%s: want a number", b)
	}
	*n = looseID(v)
	return nil
}

// Import is the result of FromNVMeTCLI.
type Import struct {
	Config *Config
	Notes  []string // what has no counterpart here and is left out, one line each
	// Secrets are the secrets of hosts, for the file named by Config.Authentication.Secrets.
	Secrets []cli.HostSecrets
}

// FromNVMeTCLI reads what Linux's nvmetcli saved. The Config is valid. secrets is the name of the file that the secrets
// of hosts will be in; if it is empty, they are left out.
func FromNVMeTCLI(name string, b []byte, secrets string) (*Import, error) {
	var in nvmetcli
	if err := json.Unmarshal(b, &in); err != nil {
		return nil, jsonError(name, b, err)
	}
	if len(in.Subsystems) == 0 {
		return nil, &FieldError{File: name, Field: "subsystems", Err: errors.New("there are none: is this a file that nvmetcli saved?")}
	}
	im := importer{c: &Config{}}
	if err := im.hosts(in.Hosts, secrets); err != nil {
		return nil, &FieldError{File: name, Err: err}
	}
	for i := range in.Subsystems {
		im.subsystem(&in.Subsystems[i])
	}
	if len(im.c.Subsystems) == 0 {
		return nil, &FieldError{File: name, Field: "subsystems", Err: errors.New("none allows a host to connect: allow_any_host is 0, and allowed_hosts is empty")}
	}
	for i := range in.Ports {
		im.port(&in.Ports[i], in.Subsystems)
	}
	if len(im.c.Listen) == 0 {
		d := im.c.endpoints()
		im.note("no port remains: here it would listen on %s and %s; write others after listen:, if those are meant", d[0], d[1])
	}
	im.bothFamilies()
	if err := im.c.Validate(); err != nil {
		var fe *FieldError
		if errors.As(err, &fe) {
			fe.File = name
		}
		return nil, err
	}
	return &Import{im.c, im.notes, im.secrets}, nil
}

// jsonError adds the line to a JSON error.
func jsonError(name string, b []byte, err error) error {
	fe := &FieldError{File: name, Err: err}
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		fe.Line = 1 + strings.Count(string(b[:min(int(syntax.Offset), len(b))]), "\n")
	case errors.As(err, &typ):
		fe.Line = 1 + strings.Count(string(b[:min(int(typ.Offset), len(b))]), "\n")
		fe.Field, fe.Err = typ.Field, fmt.Errorf("want %s, not %s", jsonKind(typ.Type), typ.Value)
	}
	return fe
}

// jsonKind returns JSON's name for the kind of value that a Go type is read from.
func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Slice:
		return "array"
	case reflect.String:
		return "string"
	}
	return "number"
}

type importer struct {
	c       *Config
	notes   []string
	secrets []cli.HostSecrets
}

func (im *importer) note(format string, a ...any) {
	im.notes = append(im.notes, nvme.Shown(fmt.Sprintf(format, a...)))
}

// nvmetSetting is a setting that this target has for everything together, or not at all.
type nvmetSetting struct {
	name  string
	usual []string // what nvmet has it at unless it is set
	here  string   // the key of the configuration; may be empty
}

// unlike notes the settings of a port or subsystem that somebody has set.
func (im *importer) unlike(of string, has map[string]string, settings []nvmetSetting) {
	for _, s := range settings {
		v, ok := has[s.name]
		switch {
		case !ok, slices.Contains(s.usual, v):
		case s.here == "":
			im.note("%s: %s of %s is left out", of, s.name, v)
		default:
			im.note("%s: %s of %s is left out: here %s says it for all", of, s.name, v, s.here)
		}
	}
}

// hosts imports the secrets of hosts, and what they may be used with.
func (im *importer) hosts(hosts []nvmetHost, file string) error {
	a := &Authentication{Secrets: file, Optional: true} // with nvmet a host without a secret can simply connect
	for _, h := range hosts {
		switch {
		case h.Key == "" && h.CtrlKey == "":
			continue
		case h.Key == "" || file == "":
			im.note("host %s: its secrets are left out; import with --secrets FILE writes those that authenticate it to a file", h.NQN)
			continue
		}
		s := cli.HostSecrets{NQN: h.NQN}
		var err error
		if s.Host, err = dhchap.ParseSecret(h.Key); err == nil && h.CtrlKey != "" {
			s.Controller, err = dhchap.ParseSecret(h.CtrlKey)
		}
		if err != nil {
			return fmt.Errorf("host %s: %w", h.NQN, err)
		}
		im.secrets = append(im.secrets, s)
		var hash nvme.AuthHash
		if hash.UnmarshalText([]byte(h.Hash)) == nil && !slices.Contains(a.Hashes, hash) {
			a.Hashes = append(a.Hashes, hash)
		}
		var group nvme.DHGroup
		if group.UnmarshalText([]byte(h.DHGroup)) == nil && !slices.Contains(a.DHGroups, group) {
			a.DHGroups = append(a.DHGroups, group)
		}
	}
	if len(im.secrets) > 0 {
		im.c.Authentication = a
	}
	return nil
}

// endpoint parses the address of a port or referral.
func (a *nvmetAddr) endpoint() (cli.Endpoint, error) {
	text := a.TrType + "://" + a.TrAddr
	if strings.Contains(a.TrAddr, ":") {
		text = a.TrType + "://[" + a.TrAddr + "]"
	}
	if a.TrSvcID != "" {
		text += ":" + a.TrSvcID
	}
	return cli.ParseEndpoint(text)
}

func (im *importer) port(p *nvmetPort, all []nvmetSubsystem) {
	e, err := p.Addr.endpoint()
	if err != nil {
		im.note("port %v: left out", err)
		return
	}
	switch {
	case p.Addr.TSAS != "tls1.3":
	case p.Addr.TReq != "not required": // nvmet demands TLS then, whatever else the file says
		im.note("port %s: it demands TLS, which isn't supported, and is left out: here it would serve every host in clear text", e)
		return
	default:
		im.note("port %s: it also accepts TLS, which isn't supported", e)
	}
	im.c.Listen = append(im.c.Listen, e)
	said := map[uint32]bool{0: true, 1: true} // group 1, which 0 stands for, needs no word to be optimized
	for _, g := range p.ANAGroups {
		said[uint32(g.GrpID)] = true
		var state ANAState
		if err := state.UnmarshalText([]byte(g.ANA.State)); err != nil {
			im.note("port %s: ANA group %d: state %v: it is optimized here", e, g.GrpID, err)
		} else if state != ANAState(nvme.ANAOptimized) {
			im.c.SetANA(uint32(g.GrpID), nvme.ANAState(state), &e)
		}
	}
	for i := range im.c.Subsystems {
		for _, n := range im.c.Subsystems[i].Namespaces {
			if !said[n.ANAGroup] { // nvmet has it inaccessible there
				im.c.SetANA(n.ANAGroup, nvme.ANAInaccessible, &e)
			}
		}
	}
	inline := "16384"
	if e.Transport == nvme.TransportRDMA {
		inline = "4096"
	}
	im.unlike("port "+e.String(), p.Param, []nvmetSetting{
		{"inline_data_size", []string{"-1", inline}, "network.in_capsule"},
		{"max_queue_size", []string{"-1", "128", "1024"}, "network.queue_depth"},
		{"pi_enable", []string{"0"}, ""},
	})
	for i := range p.Referrals {
		im.referral(e, &p.Referrals[i])
	}
	im.served(e, p.Subsystems, all)
}

// bothFamilies adds 0.0.0.0 to each [::] of TCP: there nvmet accepts connections over IPv4 too, unless
// net.ipv6.bindv6only is set, and this target doesn't. Over RDMA neither does.
func (im *importer) bothFamilies() {
	for _, e := range slices.Clone(im.c.Listen) {
		four := cli.Endpoint{Transport: e.Transport, Addr: netip.AddrPortFrom(netip.IPv4Unspecified(), e.Addr.Port())}
		if e.Transport != nvme.TransportTCP || e.Addr.Addr() != netip.IPv6Unspecified() || slices.ContainsFunc(im.c.Listen, four.Overlaps) {
			continue
		}
		im.c.Listen = append(im.c.Listen, four)
		for _, a := range slices.Clone(im.c.ANA) {
			if *a.Listen == e {
				im.c.SetANA(a.Group, nvme.ANAState(a.State), &four)
			}
		}
	}
}

// referral imports a referral of a port. Here all ports report all referrals.
func (im *importer) referral(port cli.Endpoint, r *nvmetReferral) {
	if r.Enable == 0 {
		im.note("port %s: referral %s is not enabled, and left out", port, r.Name)
		return
	}
	e, err := r.Addr.endpoint()
	if err == nil {
		to := target.Referral{Transport: e.Transport, Addr: e.Addr}
		err = to.Validate()
	}
	if err != nil {
		im.note("port %s: referral %s is left out: %v", port, r.Name, err)
		return
	}
	if !slices.Contains(im.c.Discovery.Referrals, e) {
		im.c.Discovery.Referrals = append(im.c.Discovery.Referrals, e)
	}
}

// served notes what a port serves here but not in nvmet, and the other way round.
func (im *importer) served(port cli.Endpoint, names []string, all []nvmetSubsystem) {
	for _, nqn := range names {
		if !slices.ContainsFunc(all, func(s nvmetSubsystem) bool { return s.NQN == nqn }) {
			im.note("port %s: subsystem %s is left out: the file doesn't say what it is", port, nqn)
		}
	}
	var more []string
	for i := range im.c.Subsystems {
		if nqn := im.c.Subsystems[i].NQN; !slices.Contains(names, nqn) {
			more = append(more, nqn)
		}
	}
	if len(more) > 0 {
		im.note("port %s: it serves every subsystem here, so %s too", port, strings.Join(more, ", "))
	}
}

func (im *importer) subsystem(s *nvmetSubsystem) {
	out := Subsystem{NQN: s.NQN, Serial: s.Attr["serial"], Model: s.Attr["model"], Namespaces: []Namespace{}}
	if s.Attr["allow_any_host"] != "1" {
		if out.Hosts = s.AllowedHosts; len(out.Hosts) == 0 {
			im.note("subsystem %s: it allows no host, and is left out: here it would allow every one", s.NQN)
			return
		}
	}
	if cmp.Or(s.Attr["cntlid_min"], "1") != "1" || cmp.Or(s.Attr["cntlid_max"], "65519") != "65519" {
		im.note("subsystem %s: the range of controller IDs is left out", s.NQN)
	}
	im.unlike("subsystem "+s.NQN, s.Attr, []nvmetSetting{{"qid_max", []string{"128"}, "limits.queues"}, {"pi_enable", []string{"0"}, ""}})
	for _, p := range s.Passthru {
		if p.Enable != 0 {
			im.note("subsystem %s: it passes commands to the controller %s, which isn't supported: its namespaces are left out", s.NQN, p.Device.Path)
		}
	}
	for _, n := range s.Namespaces {
		if n.Enable == 0 {
			im.note("subsystem %s: namespace %d is not enabled, and left out", s.NQN, n.NSID)
			continue
		}
		ns := Namespace{NSID: n.NSID, Volume: n.Device.Path}
		if id, err := uuid.Parse(n.Device.UUID); err == nil {
			ns.UUID = (*UUID)(&id)
		}
		if g := uint32(max(n.ANAGrpID, n.ANA.GrpID)); g != 1 {
			ns.ANAGroup = g
		}
		if strings.Trim(n.Device.NGUID, "0-") != "" {
			ns.NGUID = new(NGUID)
			if err := ns.NGUID.UnmarshalText([]byte(n.Device.NGUID)); err != nil {
				im.note("subsystem %s: the NGUID of namespace %d is left out: %v", s.NQN, n.NSID, err)
				ns.NGUID = nil
			}
		}
		out.Namespaces = append(out.Namespaces, ns)
	}
	im.c.Subsystems = append(im.c.Subsystems, out)
}
