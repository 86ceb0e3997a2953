package pdu

// Rules is what a received header is checked against: the role of the receiver, and what ICReq and
// ICResp agreed on. It may change only between two PDUs.
type Rules struct {
	Self   Role   // the receiver
	Ready  bool   // ICReq and ICResp were exchanged
	Format Format // of the PDUs after them
}

// Check applies the rules of section 3.6.1 and of each PDU's header to h. It returns nil, or the
// error to report in a terminate request.
func (ru *Rules) Check(h Header) *FieldError {
	switch {
	case h.Type < NumTypes && headerLengths[h.Type] != 0:
	case !ru.Ready && isTLS(h):
		return Invalid(offType, "type: this is TLS, which isn't supported")
	default:
		return Invalid(offType, "type")
	}
	if err := ru.checkSequence(h.Type); err != nil {
		return err
	}
	if h.HLEN != headerLengths[h.Type] {
		return Invalid(offHLEN, "HLEN")
	}
	switch h.Type {
	case TypeICReq, TypeICResp:
		return checkPlain(h, ICSize, ICSize)
	case TypeH2CTermReq, TypeC2HTermReq:
		return checkPlain(h, TermReqSize, TermReqSize+MaxTermData)
	}
	return ru.checkBody(h)
}

// isTLS reports whether h is the beginning of a TLS handshake (RFC 8446, section 5.1): the type of the record, and the
// first byte of its version.
func isTLS(h Header) bool { return h.Type == 22 && h.Flags == 3 }

// checkSequence checks whether a PDU of type t may come at all now.
func (ru *Rules) checkSequence(t Type) *FieldError {
	ic := t == TypeICReq || t == TypeICResp
	if senders[t] == ru.Self || (!t.isTermReq() && ic == ru.Ready) {
		return &FieldError{FESSequence, offType, "type"}
	}
	return nil
}

// checkPlain checks a PDU of a type that never has digests.
func checkPlain(h Header, least, most uint32) *FieldError {
	if h.Flags&(FlagHDGST|FlagDDGST) != 0 {
		return Invalid(OffFlags, "digest flags")
	}
	if h.PLEN < least || h.PLEN > most {
		return Invalid(OffPLEN, "PLEN")
	}
	return nil
}

// checkBody checks a capsule, data or R2T PDU.
func (ru *Rules) checkBody(h Header) *FieldError {
	if (h.Flags&FlagHDGST != 0) != ru.Format.HeaderDigest() {
		return Invalid(OffFlags, "HDGSTF")
	}
	head := uint32(h.HLEN) + uint32(h.headerDigestLen())
	if h.PLEN <= head {
		if needsData(h.Type) || h.PLEN < head {
			return Invalid(OffPLEN, "PLEN")
		}
		return nil
	}
	if !needsData(h.Type) && h.Type != TypeCapsuleCmd {
		return Invalid(OffPLEN, "PLEN")
	}
	if (h.Flags&FlagDDGST != 0) != ru.Format.DataDigest() {
		return Invalid(OffFlags, "DDGSTF")
	}
	if uint32(h.PDO) < head || int(h.PDO)%ru.Format.align() != 0 {
		return Invalid(offPDO, "PDO")
	}
	if h.PLEN <= uint32(h.PDO)+uint32(h.dataDigestLen()) {
		return Invalid(OffPLEN, "PLEN")
	}
	return nil
}

// needsData reports whether a PDU of type t must have data.
func needsData(t Type) bool { return t == TypeH2CData || t == TypeC2HData }
