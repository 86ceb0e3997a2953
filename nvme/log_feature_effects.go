package nvme

import "unsafe"

// FeatureEffectsLog is the Feature Identifiers Supported and Effects log, 12h: one entry for each
// feature.
type FeatureEffectsLog [256]FeatureEffects

var _ [1024]byte = [unsafe.Sizeof(FeatureEffectsLog{})]byte{}

// FeatureEffects says whether a feature is supported, and what setting it affects.
type FeatureEffects uint32

// Bits of FeatureEffects; the scope is in bits 31:20.
const (
	FeatureEffectSupported FeatureEffects = 1 << 0
	FeatureScopeNamespace  FeatureEffects = 1 << 20
	FeatureScopeController FeatureEffects = 1 << 21
)

// AppendTo appends the page.
func (p *FeatureEffectsLog) AppendTo(b []byte) []byte { return appendPage(b, p) }

// Parse reads the page from b.
func (p *FeatureEffectsLog) Parse(b []byte) error {
	return parsePage(b, p, int(unsafe.Sizeof(*p)), LogFeatureEffects.String())
}
