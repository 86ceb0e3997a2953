package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

func newShowRegs() *cobra.Command {
	return inspection{
		use: "show-regs", short: "Show the properties of the controller",
		long: `show-regs shows the properties of the controller, which with PCIe are registers: its
capabilities, version, configuration and status, as far as it has them over fabrics.`,
		example: "  nvmeinit show-regs -t rdma -a 127.0.0.1\n  nvmeinit show-regs -t tcp -a 127.0.0.1 -H",
		bits:    true,
		run: func(c *cobra.Command, f *connFlags, s *session) error {
			var fs []field
			for _, p := range []nvme.Property{nvme.PropCAP, nvme.PropVS, nvme.PropCC, nvme.PropCSTS, nvme.PropNSSR, nvme.PropCRTO} {
				v, err := s.Property(c.Context(), p)
				var refused *nvme.StatusError
				switch {
				case errors.As(err, &refused): // the controller doesn't have it
				case err != nil:
					return err
				default:
					fs = append(fs, propertyField(p, v))
				}
			}
			return printFields(c.OutOrStdout(), f.output, f.decoded(fs))
		},
	}.command()
}

// propertyField shows a property with nvme-cli's name, and its meaning.
func propertyField(p nvme.Property, v uint64) field {
	means := ""
	switch p {
	case nvme.PropCAP:
		means = capabilityMeaning(nvme.CAP(v))
	case nvme.PropVS:
		means = nvme.Version(v).String()
	case nvme.PropCC:
		means = configurationMeaning(nvme.CC(v))
	case nvme.PropCSTS:
		means = statusMeaning(nvme.CSTS(v))
	case nvme.PropCRTO:
		means = fmt.Sprintf("ready with media within %v", time.Duration(v&0xffff)*500*time.Millisecond)
	}
	text := fmt.Sprintf("%#x", v)
	if means != "" {
		text += " (" + means + ")"
	}
	return field{strings.ToLower(p.String()), text, v}
}

func capabilityMeaning(c nvme.CAP) string {
	means := []string{fmt.Sprintf("queues of up to %d entries", c.MQES()), fmt.Sprintf("ready within %v", c.Timeout())}
	can := setBits(c, []bitName[nvme.CAP]{
		{nvme.CAPNSSRS, "NVM subsystem reset"}, {nvme.CAPNVM, "NVM command set"}, {nvme.CAPIOCS, "I/O command sets"},
		{nvme.CAPNoIO, "no I/O command set"}, {nvme.CAPCRWMS, "CRTO"},
	})
	return strings.Join(append(means, can...), ", ")
}

func configurationMeaning(c nvme.CC) string {
	sets := map[nvme.CC]string{nvme.CCCSSNVM: "NVM command set", nvme.CCCSSAll: "all I/O command sets", nvme.CCCSSNone: "admin commands only"}
	return fmt.Sprintf("%s, %s, entries of %d and %d bytes", onOff(c.Enabled()), sets[c&nvme.CCCSSMask], 1<<c.IOSQES(), 1<<c.IOCQES())
}

func statusMeaning(c nvme.CSTS) string {
	means := "not ready"
	if c.Ready() {
		means = "ready"
	}
	if c.Fatal() {
		means += ", fatal"
	}
	switch c.Shutdown() {
	case nvme.CSTSShutdownOccurs:
		means += ", shutting down"
	case nvme.CSTSShutdownComplete:
		means += ", shut down"
	}
	return means
}
