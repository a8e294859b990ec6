"""Ed25519 keys that sign anchors and exports. The only module that needs `leadhand[sign]`.

A private key is a PEM file (PKCS #8) that only its owner may read, a public key a PEM file beside
it that may be distributed. A key's name is the beginning of the SHA-256 of its 32 bytes.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from leadhand.errors import UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SCHEME = "ed25519:"
MISSING = "signing needs the package `cryptography`. Fix: pip install 'leadhand[sign]'"


def _library() -> tuple[Any, Any, Any]:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise UsageError(MISSING) from None
    return ed25519, serialization, InvalidSignature


def name_of(raw: bytes) -> str:
    """Return the name of a public key."""
    return f"ed25519:{sha256(raw).hexdigest()[:16]}"


def raw_key(text: str) -> bytes:
    """Return the 32 bytes of a public key in the settings.

    Raise `ValueError` if it is malformed.
    """
    raw = b64decode(text.removeprefix(SCHEME), validate=True)
    if not text.startswith(SCHEME) or len(raw) != 32:
        raise ValueError("is no Ed25519 public key")
    return raw


class PrivateKey:
    """A private key, which signs."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = PublicKey(key.public_key())

    @classmethod
    def new(cls) -> PrivateKey:
        """Generate a new key."""
        ed25519, _, _ = _library()
        return cls(ed25519.Ed25519PrivateKey.generate())

    @classmethod
    def of(cls, pem: bytes, name: str = "the key") -> PrivateKey:
        """Load the key from the bytes of a PEM file. Raise `UsageError` if it is no Ed25519 key."""
        ed25519, serialization, _ = _library()
        try:
            key = serialization.load_pem_private_key(pem, password=None)
        except (ValueError, TypeError):
            key = None
        if not isinstance(key, ed25519.Ed25519PrivateKey):
            raise UsageError(f"{name}: is no Ed25519 private key. Fix: leadhand audit-key")
        return cls(key)

    @property
    def name(self) -> str:
        """The name of its public key."""
        return self.public.name

    def pem(self) -> bytes:
        """Return the PEM file of the key."""
        _, serialization, _ = _library()
        pem: bytes = self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return pem

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`: 64 bytes."""
        return self._key.sign(message)


class PublicKey:
    """A public key, which checks signatures."""

    def __init__(self, key: Any) -> None:
        _, serialization, self._invalid = _library()
        self._key = key
        self.raw: bytes = key.public_bytes(
            serialization.Encoding.Raw, serialization.PublicFormat.Raw
        )

    @classmethod
    def of(cls, data: bytes, name: str = "the key") -> PublicKey:
        """Load the key from the bytes of a PEM file, or from 32 raw bytes.

        Raise `UsageError` if it is no Ed25519 key.
        """
        ed25519, serialization, _ = _library()
        try:
            if len(data) == 32:
                return cls(ed25519.Ed25519PublicKey.from_public_bytes(data))
            key = serialization.load_pem_public_key(data)
        except ValueError:
            key = None
        if not isinstance(key, ed25519.Ed25519PublicKey):
            raise UsageError(f"{name}: is no Ed25519 public key")
        return cls(key)

    @property
    def name(self) -> str:
        """The name of the key."""
        return name_of(self.raw)

    @property
    def text(self) -> str:
        """Its bytes in base64, for documents."""
        return b64encode(self.raw).decode()

    def pem(self) -> bytes:
        """Return the PEM file of the key."""
        _, serialization, _ = _library()
        pem: bytes = self._key.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return pem

    def check(self, message: bytes, signature: bytes) -> bool:
        """Return whether a signature of this key is valid."""
        try:
            self._key.verify(signature, message)
        except self._invalid:
            return False
        return True
