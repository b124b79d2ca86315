"""The screen of the conversation: what lies where, and how a message becomes an answer that is shown and stored.

The only place that knows both the session and the widgets. What the commands do is in `chat_host`, loading in
`model_loader`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.binding import ActiveBinding, BindingType
from textual.command import CommandPalette
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen

from engine import paths
from engine.chat.terminal_safe import clean
from tui.commands import registry
from tui.commands.host import ScreenHost
from tui.commands.provider import SlashCommands
from tui.conversation.chat import Chat, Turn
from tui.conversation.model_manager import ModelManager
from tui.keys import in_order, screen_bindings
from tui.screens.charts import ChartScreen
from tui.screens.model_loader import ModelLoader
from tui.screens.services import Services
from tui.widgets.composer.area import ComposerArea
from tui.widgets.composer.attachments import Attachments
from tui.widgets.composer.text_area import ComposerTextArea
from tui.widgets.footer import KeyRow
from tui.widgets.header import ChatHeader, state_of
from tui.widgets.panels.base import Figures, figures_of
from tui.widgets.panels.prefix import share
from tui.widgets.ribbon import Ribbon, note_of
from tui.widgets.side_bar import PanelView, SideBar
from tui.widgets.status_row import StatusRow
from tui.widgets.task_row import TaskRow
from tui.widgets.transcript.answer import View
from tui.widgets.transcript.conversation_view import ConversationView
from tui.widgets.transcript.view import Transcript


class ChatScreen(Screen[None]):
    """Keys act here; messages of the widgets end here."""

    BINDINGS: ClassVar[list[BindingType]] = [*screen_bindings()]

    host: ScreenHost
    """Carries the commands out; given before the screen is composed."""

    def __init__(self, services: Services) -> None:
        super().__init__(id="_default")
        self.services = services
        self.session, self.library = services.session, services.library
        self.library.warn = self.warn
        self.conversation = ConversationView(
            self.session, thumbnails=services.wishes.thumbnails and not services.no_color, id="main"
        )
        manager = ModelManager(self.session, services.options.models, services.options.loader)
        self.loader = ModelLoader(self, manager, services.preferences, self.say, self.model_changed, self.send_queued)
        self._calibration: tuple[str, Any] = ("", None)

    def compose(self) -> ComposeResult:
        self.area = ComposerArea(self.host, self.services.history, self.services.wishes.keys, id="area")
        yield ChatHeader(id="header")
        with Horizontal(id="body"):
            yield self.conversation
            yield SideBar(id="side")
        yield StatusRow(id="status")
        yield Ribbon(id="ribbon")
        yield TaskRow(id="task")
        yield self.area
        yield KeyRow(show_command_palette=False)

    @property
    def transcript(self) -> Transcript:
        return self.conversation.transcript

    @property
    def composer(self) -> ComposerTextArea:
        return self.area.text_area

    @property
    def active_bindings(self) -> dict[str, ActiveBinding]:
        """In the order of the footer; keys that a widget has too would stand before all others."""
        return in_order(super().active_bindings, self.app.screen is self)

    def on_screen_suspend(self) -> None:
        self.refresh_bindings()

    def on_screen_resume(self) -> None:
        self.refresh_bindings()

    async def on_mount(self) -> None:
        preferences, options = self.services.preferences, self.services.options
        self.composer.focus()
        self.transcript.add_notice(Content(""), "notice")
        if notes := self.services.notes(self.app.available_themes):
            self.transcript.add_notice(Content(clean("\n".join(notes))))
        if preferences.view in [str(view) for view in View]:
            self.transcript.view = View(preferences.view)
        self.query_one(SideBar).set_mode(preferences.panels)
        self.show_figures()
        self.library.open(paths.data() / "chats.db")
        if self.library.store is not None and (options.continue_last or options.resume is not None):
            found = self.library.find(options.resume or "")
            if isinstance(found, Chat):
                await self.show_chat(found)
            else:
                self.say(found, "warning")
        self.session.queued = options.prompt or None
        self.call_after_refresh(self.loader.start)

    # Sending ----------------------------------------------------------------------------------------------------------

    async def on_composer_area_submitted(self, event: ComposerArea.Submitted) -> None:
        if event.command is not None:
            await self.action_command(*event.command)
        elif event.edited is not None and event.edited in self.session.chat.turns:
            self.answer_again(event.text, event.edited)
        else:
            self.submit(event.text)

    def submit(self, text: str) -> None:
        """Send, or queue while something else is under way."""
        session = self.session
        if session.engine is None or session.busy:
            session.queued = f"{session.queued}\n\n{text}" if session.queued else text
            self.area.show_queue()
            if session.engine is None:
                self.loader.start()
            return
        self.transcript.remove_notice("notice")
        self._begin(session.begin(text))

    def answer_again(self, text: str | None = None, turn: Turn | None = None) -> str | None:
        """Answer the last message, or that of `turn`, anew, or `text` in its place. A sentence says why not."""
        gone = self.session.rewind(turn)
        if isinstance(gone, str):
            return gone
        for each in reversed(gone):
            self.transcript.drop(each)
        self._begin(self.session.begin(text or gone[0].user))
        return None

    def _begin(self, turn: Turn) -> None:
        """Put a turn on the screen and have it answered."""
        self.area.name_pictures(turn)
        self.transcript.add(turn)
        self.library.save(turn)
        self.show_figures()
        self._answer(turn)

    @work(thread=True, group="submit", exit_on_error=False)
    def _answer(self, turn: Turn) -> None:
        self.session.submit(turn, self.conversation.events.put)
        if turn.images:
            self.app.call_from_thread(self.transcript.show_images, turn)

    async def send_queued(self) -> None:
        text = self.area.unqueue_text()
        if text:
            self.submit(text)

    # Receiving --------------------------------------------------------------------------------------------------------

    def on_conversation_view_drawn(self, event: ConversationView.Drawn) -> None:
        for turn in event.turns:
            self.library.progressed(turn)
        if event.figures:
            self.show_figures()

    async def on_conversation_view_ended(self, event: ConversationView.Ended) -> None:
        self.library.save(event.turn)
        self.show_figures()
        self.refresh_bindings()
        if self.session.queued and not event.turn.answer.error:
            await self.send_queued()

    def model_changed(self) -> None:
        """Another model answers, or none."""
        self.show_figures()
        self.area.pictures_changed()

    async def show_chat(self, chat: Chat) -> None:
        """Go on with another conversation."""
        self.library.show(chat)
        self.conversation.show(chat)
        self.composer.focus()
        self.show_figures()

    # Showing ----------------------------------------------------------------------------------------------------------

    def say(self, text: str, severity: Any = "information") -> None:
        """A short notice in the corner; foreign text in it stays text."""
        self.app.clear_notifications()
        self.notify(clean(text), severity=severity, timeout=3, markup=False)

    def tell(self, text: str | None) -> None:
        """A short answer in the corner, a longer one in the conversation."""
        if text and "\n" not in text and len(text) < 120:
            self.say(text)
        elif text:
            self.transcript.add_notice(Content(clean(text)))

    def warn(self, sentence: str) -> None:
        """In the conversation, since a corner forgets, and this costs what is written."""
        self.transcript.add_notice(Content(clean(f"⚠ {sentence}")))

    def figures(self) -> Figures:
        engine, drafter = self.session.engine, self.session.drafter
        if not self.session.busy or drafter != self._calibration[0]:  # prediction is not for every frame
            self._calibration = drafter, getattr(engine, "calibration", None)
        return figures_of(self.session, self._calibration[1])

    def show_figures(self) -> None:
        figures = self.figures()
        self.query_one(SideBar).show(figures)
        if isinstance(self.app.screen, ChartScreen):
            self.app.screen.show(figures)
        self.query_one(StatusRow).show(figures.turn, figures.session, share(figures))
        self.query_one(Ribbon).show(list(figures.turn.ticks), note_of(self.session))
        self.query_one(ChatHeader).show(state_of(self.session, self.loader.manager.name))

    def on_resize(self) -> None:
        self.call_after_refresh(self.show_figures)

    def set_panels(self, mode: str) -> None:
        """`all`, `compact` or `off`."""
        self.services.preferences.remember(panels=mode)
        self.query_one(SideBar).set_mode(mode)
        self.call_after_refresh(self.show_figures)

    # What the widgets ask for -----------------------------------------------------------------------------------------

    def on_key(self, event: events.Key) -> None:
        """What is typed belongs to the message, whatever has the keyboard, but for the block cursor's letters."""
        if event.is_printable and not self.composer.has_focus and event.key not in self.active_bindings:
            event.stop()
            self.set_focus(self.composer)
            self.composer.post_message(events.Key(event.key, event.character))

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        self.set_focus(self.composer)
        self.composer.paste(event.text)

    def on_transcript_unpointed(self) -> None:
        if self.focused is self.transcript and self.transcript.pointed is None:
            self.composer.focus()

    def on_transcript_copy_wanted(self, event: Transcript.CopyWanted) -> None:
        if event.text:
            self.host.copy_text(event.text)
        self.say(f"Copied {len(event.text)} characters." if event.text else "There is nothing to copy here.")

    async def on_transcript_turn_wanted(self, event: Transcript.TurnWanted) -> None:
        self.tell(await self.host.turn(event.what, event.turn, event.part))

    def on_composer_area_refused(self, event: ComposerArea.Refused) -> None:
        self.say(event.reason, "warning")

    async def on_composer_text_area_help_wanted(self) -> None:
        await self.action_command("help")

    def on_attachments_clicked(self, event: Attachments.Clicked) -> None:
        self.tell(self.host.pictures())

    async def on_panel_view_chosen(self, event: PanelView.Chosen) -> None:
        await self.action_command("chart", event.id)

    # Keys -------------------------------------------------------------------------------------------------------------

    async def action_command(self, name: str, words: str = "") -> None:
        """A slash command, typed, chosen or by its key."""
        self.tell(await registry.run(self.host, name, words))
        self.area.pictures_changed()
        self.show_figures()

    def action_palette(self) -> None:
        self.app.push_screen(CommandPalette([SlashCommands], id="--command-palette"))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if (action, *parameters) == ("command", "retry"):
            return bool(self.loader.manager.error) or self.session.failed is not None
        return super().check_action(action, parameters)

    def action_stop(self) -> None:
        """Esc: leave what is open, else stop the answer."""
        if not (self.area.close() or any([self.area.leave_edit(), self.transcript.unpoint()]) or self.stop_answer()):
            self.clear_selection()
        self.composer.focus()

    def stop_answer(self) -> bool:
        """Whether there was one to stop."""
        stopped = self.session.cancel()
        if stopped:
            self.area.give_back()
        return stopped

    def action_next_drafter(self) -> None:
        self.tell(self.host.next_drafter())

    def action_drafters(self) -> None:
        self.tell(self.host.drafters())

    def action_view(self) -> None:
        view = self.transcript.view.next
        self.transcript.show(view)
        self.services.preferences.remember(view=str(view))
        self.say(view.says)

    def action_panels(self) -> None:
        self.set_panels(self.query_one(SideBar).next_mode)

    def action_thought(self) -> None:
        if not self.transcript.toggle_last_thought():
            self.say("No answer here has reasoning.")

    def action_page(self, direction: int) -> None:
        if direction < 0:
            self.transcript.scroll_page_up(animate=False)
        else:
            self.transcript.scroll_page_down(animate=False)

    def action_live(self) -> None:
        self.conversation.follow()

    def action_block(self, by: int) -> None:
        if self.transcript.step(by):
            self.set_focus(self.transcript, scroll_visible=False)  # at once: the next key is for the block cursor
        else:
            self.say("No message to select yet.")

    def action_paste(self) -> None:
        self.area.paste()

    async def action_editor(self) -> None:
        """Ctrl+G: the message in $VISUAL or $EDITOR."""
        text = await self.host.edit_text(self.composer.message)
        if text is not None:
            self.composer.write(text)

    def action_search_history(self) -> None:
        """Ctrl+R: search what was sent, and go on to the next older find."""
        self.composer.focus()
        self.composer.search_older()
